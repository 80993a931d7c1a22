"""Declarations of all metrics of a training step: name, unit, kind, meaning.

The totals of a run, the rates, and the site's page of metrics are made from the tables below. A test runs
steps of every method and refuses a key that is not declared. r3l.runs.step_metrics reads and adds them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

Counts = Mapping[str, float]


class MetricKind(StrEnum):
    """How the values of a metric at several steps are combined.

    ``total``: a count, added up over a run. ``time``: seconds, added up by readers only; not in results,
    which repeat byte for byte. ``fault``: a repaired fault, not in results either. ``step``: a mean, share or
    state of one step, never added up.
    """

    TOTAL = "total"
    TIME = "time"
    FAULT = "fault"
    STEP = "step"


@dataclass(frozen=True)
class Metric:
    """A key of metrics.jsonl. A ``name`` that ends in ``/*`` declares a family of keys."""

    name: str
    unit: str
    kind: MetricKind
    meaning: str


@dataclass(frozen=True)
class Rate:
    """A rate of counts: sum of ``numerator`` / (sum of ``denominator`` - sum of ``excluded``).

    The three are lists of metrics; a missing metric counts as 0. The rate is the metric ``rate/NAME``.
    """

    name: str
    numerator: tuple[str, ...]
    denominator: tuple[str, ...]
    meaning: str
    excluded: tuple[str, ...] = ()
    unit: str = "share"

    @property
    def counts(self) -> tuple[str, ...]:
        """The metrics that the rate is made of."""
        return self.numerator + self.denominator + self.excluded

    def of(self, counts: Counts) -> float | None:
        """The rate, from the counts of a step or the totals of a run; None if the denominator is 0."""
        denominator = _sum(counts, self.denominator) - _sum(counts, self.excluded)
        return _sum(counts, self.numerator) / denominator if denominator else None


GENERATED_TOKENS = "tokens/generated"
SCORED_TOKENS = "tokens/scored"
TRAINED_TOKENS = "tokens/trained"
FORWARDED_TOKENS = "tokens/forwarded"
COLLECT_SECONDS = "seconds/collect"
TRAIN_SECONDS = "seconds/train"
TRAIN_SUCCESS = "train/success"
TEACHER_CONTEXTS = "teacher/contexts"

TOTAL = MetricKind.TOTAL
TIME = MetricKind.TIME
FAULT = MetricKind.FAULT
STEP = MetricKind.STEP
_DECLARED = (
    Metric("step", "-", STEP, "number of the update, from 1"),
    Metric(TRAIN_SUCCESS, "share", STEP, "success rate of base rollouts"),
    Metric("train/success/*", "share", STEP, "success rate of base rollouts in one task group"),
    Metric("train/reward", "reward", STEP, "mean reward of base rollouts"),
    Metric("train/turns", "turns", STEP, "mean turns of base rollouts"),
    Metric("groups/policy", "groups", STEP, "groups of base rollouts that are weighted by advantages"),
    Metric("groups/zero_variance", "groups", STEP, "such groups whose rewards are all equal"),
    Metric("entropy", "nats/token", STEP, "mean -log p of the sampled tokens of base rollouts"),
    Metric("advantage/mean", "advantage", STEP, "mean over policy rows that train"),
    Metric("advantage/positive_fraction", "share", STEP, "policy rows that train with a positive advantage"),
    Metric("advantage/negative_to_positive", "ratio", STEP, "sum of negative / sum of positive advantages"),
    Metric("advantage/inverted", "rows", STEP, "policy rows below a row with a lower reward (A-2)"),
    Metric("loss", "loss", STEP, "the loss that the update minimises"),
    Metric("loss/policy", "loss", STEP, "its advantage-weighted part"),
    Metric("loss/sft", "loss", STEP, "mean -log p of imitated tokens, before its coefficient"),
    Metric("loss/kl", "nats/token", STEP, "KL to the base checkpoint, before its coefficient"),
    Metric("clip_fraction", "share", STEP, "policy tokens whose importance ratio is clipped"),
    Metric("grad_norm", "norm", STEP, "norm of the gradient, before clipping"),
    Metric("kl_to_start", "nats/token", STEP, "k3 KL to the base, every `train.kl_metric_every` steps"),
    Metric("logprob_mismatch/mean", "nats", STEP, "mean difference of log-probs, training and sampling"),
    Metric("logprob_mismatch/max", "nats", STEP, "largest such difference"),
    Metric("distilled/nll", "nats", STEP, "mean -log p, without the hint, of distilled tokens that train"),
    Metric("distilled/nll_p99", "nats", STEP, "99th percentile of the same"),
    Metric("distilled/unlikely", "share", STEP, "distilled tokens that train with log p below -5"),
    Metric("distilled/hint_gap", "nats", STEP, "mean log p of distilled tokens with the hint minus without"),
    Metric(TEACHER_CONTEXTS, "trajectories", STEP, "those with a teacher, whose context holds more"),
    Metric("teacher/with_feedback", "trajectories", STEP, "such ones whose teacher reads a hint"),
    Metric("teacher/by_solution", "rollouts", STEP, "those whose teacher reads a solved sibling"),
    Metric("teacher/by_feedback", "rollouts", STEP, "those whose teacher reads feedback"),
    Metric("teacher/gap_success", "nats", STEP, "mean log p of the teacher minus the policy's, successes"),
    Metric("teacher/gap_failure", "nats", STEP, "the same of failures"),
    Metric("teacher/gap_difference", "nats", STEP, "the first minus the second: 0 for a blind teacher"),
    Metric("teacher/gap_difference_same_task", "nats", STEP, "of attempts at one task with one kind of hint"),
    Metric("teacher/gap_success_by_solution", "nats", STEP, "of successes whose hint is a solved sibling"),
    Metric("teacher/gap_failure_by_solution", "nats", STEP, "of failures whose hint is a solved sibling"),
    Metric("teacher/gap_difference_by_solution", "nats", STEP, "the first minus the second: equal hints"),
    Metric("teacher/gap_failure_by_feedback", "nats", STEP, "of failures whose hint is feedback"),
    Metric(
        "teacher/grad_share", "share", STEP, "squared gradient of teachers' terms, every 10 steps (local)"
    ),
    Metric("teacher/grad_cosine", "cosine", STEP, "between the gradients of teachers' terms and of the rest"),
    Metric("imitated/nll", "nats", STEP, "mean -log p of imitated tokens, each with its hint"),
    Metric("imitated/nll_p99", "nats", STEP, "99th percentile of the same"),
    Metric("imitated/unlikely", "share", STEP, "imitated tokens with log p below -5"),
    Metric("handover/mean", "nats", STEP, "mean difference of log-probs, vLLM and model, after a sync"),
    Metric("handover/max", "nats", STEP, "largest such difference"),
    Metric("memory/trainer", "GiB", STEP, "largest memory of a GPU that trains (trinity)"),
    Metric("weights/behind", "steps", STEP, "updates that the sampling weights lag behind (trinity)"),
    Metric("rollouts", "rollouts", TOTAL, "episodes: base rollouts and retries"),
    Metric("env_steps", "actions", TOTAL, "actions taken in environments"),
    Metric(
        "env_failed", "rollouts", TOTAL, "rollouts that an error inside the environment ended; in no group"
    ),
    Metric("sampling_rounds", "rounds", TOTAL, "rounds of drawing tasks; several a step with DAPO"),
    Metric(GENERATED_TOKENS, "tokens", TOTAL, "all sampled tokens"),
    Metric("tokens/rollout", "tokens", TOTAL, "tokens sampled in base rollouts"),
    Metric("tokens/reflection", "tokens", TOTAL, "tokens sampled in reflections"),
    Metric("tokens/critique", "tokens", TOTAL, "tokens sampled in critiques"),
    Metric("tokens/retry", "tokens", TOTAL, "tokens sampled in retries"),
    Metric("tokens/judge", "tokens", TOTAL, "written by a judge, as its server counts; in no other sum"),
    Metric("tokens/cut", "tokens", TOTAL, "discarded: sampled after the line that ends a response (trinity)"),
    Metric("tokens/response", "tokens", TOTAL, "sampled tokens of policy rows"),
    Metric("tokens/masked", "tokens", TOTAL, "sampled tokens of policy rows that carry no gradient"),
    Metric("prefix/tokens", "tokens", TOTAL, "sampled tokens before the first turn of the earliest retry"),
    Metric("prefix/pushed_down", "tokens", TOTAL, "such tokens that train with a negative advantage"),
    Metric(TRAINED_TOKENS, "tokens", TOTAL, "tokens that carry gradient, imitated ones included"),
    Metric(SCORED_TOKENS, "tokens", TOTAL, "tokens that are only read for log-probs: teachers' contexts"),
    Metric(FORWARDED_TOKENS, "tokens", TOTAL, "tokens of the rows of an update, prompts included"),
    Metric("prompt/rollout", "tokens", TOTAL, "prompt tokens of base rollouts, each counted once per dialog"),
    Metric("prompt/reflection", "tokens", TOTAL, "prompt tokens of reflections"),
    Metric("prompt/critique", "tokens", TOTAL, "prompt tokens of critiques"),
    Metric("prompt/retry", "tokens", TOTAL, "prompt tokens of retries"),
    Metric("prompt/judge", "tokens", TOTAL, "prompt tokens of a judge, as its server counts"),
    Metric("trained/*", "tokens", TOTAL, "trained tokens by the kind of their trajectory; `sft`: imitated"),
    Metric("rows/trained", "rows", TOTAL, "rows in the update"),
    Metric("rows/no_signal", "rows", TOTAL, "rows left out: advantage 0, or no token that trains"),
    Metric("reflection/count", "reflections", TOTAL, "reflections requested"),
    Metric("reflection/valid", "reflections", TOTAL, "reflections that can be used"),
    Metric("reflection/distinct", "share", STEP, "different texts among all reflections"),
    Metric("reflection/corrupted", "reflections", TOTAL, "by the critic, with another task's pivot and hint"),
    Metric("reflection/coerced", "reflections", TOTAL, "valid reflections whose pivot was no integer"),
    Metric("reflection/invalid/*", "reflections", TOTAL, "reflections that cannot be used, by reason"),
    Metric("reflection/outcome/*", "reflections", TOTAL, "valid reflections by the outcome that they state"),
    Metric("reflection_quality/accurate", "reflections", TOTAL, "name the oracle's pivot (+-1) and cause"),
    Metric("reflection_quality/partial", "reflections", TOTAL, "name one of the two"),
    Metric("reflection_quality/wrong", "reflections", TOTAL, "name neither"),
    Metric("reflection/by_model", "reflections", TOTAL, "reflections written by the policy"),
    Metric("reflection/by_environment", "reflections", TOTAL, "written by the environment's critic"),
    Metric("reflection/by_judge", "reflections", TOTAL, "reflections written by a judge"),
    Metric("critique/by_model", "critiques", TOTAL, "critiques written by the policy"),
    Metric("critique/by_environment", "critiques", TOTAL, "critiques written by the environment's critic"),
    Metric("critique/by_judge", "critiques", TOTAL, "critiques written by a judge"),
    Metric("critique/not_json", "critiques", TOTAL, "critiques that are not JSON: their text guides"),
    Metric("critique/invalid/*", "critiques", TOTAL, "critiques that cannot be used, by reason"),
    Metric("judge/requests", "requests", TOTAL, "requests sent to a judge, repetitions included"),
    Metric("judge/repeated/*", "requests", TOTAL, "requests that were sent again, by reason"),
    Metric("judge/missing/*", "requests", TOTAL, "requests that never got a complete response, by reason"),
    Metric("judge/shortened", "requests", TOTAL, "requests with less room at the server than requested"),
    Metric("judge/overlong", "requests", TOTAL, "requests whose response exceeds the token limit"),
    Metric("judge/cut_short", "requests", TOTAL, "requests whose response the server cut before the limit"),
    Metric("judge/cut_prompts", "requests", TOTAL, "requests whose prompt the server cut"),
    Metric("judge/end_marks", "requests", TOTAL, "requests whose text ended with a control token"),
    Metric("judge/answered_by/*", "requests", TOTAL, "requests by the model that their answers name"),
    Metric("judge/other_models", "requests", TOTAL, "requests answered by another model than the first one"),
    Metric("judge/uncounted", "requests", TOTAL, "requests answered without the number of tokens"),
    Metric("judge/replaced", "characters", TOTAL, "invalid Unicode in a judge's responses"),
    Metric("retry/count", "retries", TOTAL, "retries played"),
    Metric("retry/success", "retries", TOTAL, "retries that succeed"),
    Metric("retry/improved", "retries", TOTAL, "retries with a higher reward than their base rollout"),
    Metric("retry/worse", "retries", TOTAL, "retries with a lower reward than their base rollout"),
    Metric("retry/gain", "reward", TOTAL, "rewards of retries minus rewards of their base rollouts"),
    Metric("retry/after_failure", "retries", TOTAL, "retries of a failed base rollout"),
    Metric("retry/rescued", "retries", TOTAL, "retries that succeed after a failed base rollout"),
    Metric("retry/right_pivot", "retries", TOTAL, "retries from a turn within one of the oracle's pivot"),
    Metric("retry/right_pivot_success", "retries", TOTAL, "such retries that succeed"),
    Metric("retry/wrong_pivot", "retries", TOTAL, "retries from another turn than the oracle's"),
    Metric("retry/wrong_pivot_success", "retries", TOTAL, "such retries that succeed"),
    Metric("adaptive/bases", "rollouts", TOTAL, "base rollouts of adaptive R3L"),
    Metric("adaptive/reflected", "rollouts", TOTAL, "base rollouts that were reflected on"),
    Metric("adaptive/failures_reflected", "rollouts", TOTAL, "failed base rollouts that were reflected on"),
    Metric(
        "adaptive/fresh", "pairs", TOTAL, "pairs of a failed base rollout and another rollout of its task"
    ),
    Metric("adaptive/fresh_solved", "pairs", TOTAL, "such pairs whose other rollout succeeds"),
    Metric("pivot/turns", "turns", TOTAL, "turns of base rollouts before the pivots of their retries"),
    Metric("pivot/base_turns", "turns", TOTAL, "all turns of those base rollouts"),
    Metric("pivot/with_oracle", "reflections", TOTAL, "reflections with a pivot, if the oracle has one too"),
    Metric("pivot/oracle_agrees", "reflections", TOTAL, "such reflections that name exactly that pivot"),
    Metric("pivot/oracle_near", "reflections", TOTAL, "such reflections that name it within one turn"),
    Metric("leak/guidance", "texts", TOTAL, "reflections and critiques on a task with a known answer"),
    Metric("leak/answer_stated", "texts", TOTAL, "such texts that state the answer"),
    Metric("leak/quoted", "texts", TOTAL, "such texts whose answer is in the problem or the attempt too"),
    Metric("leak/told", "texts", TOTAL, "such texts whose answer is in neither; a teacher's are dropped"),
    Metric("text/replaced", "characters", TOTAL, "invalid Unicode in texts, replaced by U+FFFD"),
    Metric("stop/*", "rollouts", TOTAL, "rollouts by the reason that ended them"),
    Metric("dropped/tasks", "tasks", TOTAL, "tasks whose exploration failed (trinity)"),
    Metric("dropped/groups", "tasks", TOTAL, "tasks refused by the method (DAPO's dynamic sampling)"),
    Metric("dropped/rejected", "rollouts", TOTAL, "rollouts below RAFT's threshold"),
    Metric("dropped/no_oracle_pivot", "retries", TOTAL, "retries not played since the oracle has no pivot"),
    Metric("dropped/teacher_context", "contexts", TOTAL, "teachers' contexts beyond `sampling.max_context`"),
    Metric("dropped/workers", "processes", FAULT, "environment workers that died and were replaced"),
    Metric(COLLECT_SECONDS, "s", TIME, "collecting in all: rollouts, reflections, retries"),
    Metric("seconds/rollout", "s", TIME, "sampling base rollouts"),
    Metric("seconds/feedback", "s", TIME, "sampling reflections and critiques"),
    Metric("seconds/retry", "s", TIME, "sampling retries"),
    Metric("seconds/score", "s", TIME, "scoring teachers' contexts"),
    Metric(TRAIN_SECONDS, "s", TIME, "the update"),
)
_QUALITY = ("reflection_quality/accurate", "reflection_quality/partial", "reflection_quality/wrong")
_IMITATED = ("trained/sft", "trained/reflection", "trained/critique")
_RETRIES = ("retry/count",)
RATES = (
    Rate(
        "retry_trigger", _RETRIES, ("rollouts",), "retries per base rollout", excluded=_RETRIES, unit="ratio"
    ),
    Rate("reflection_valid", ("reflection/valid",), ("reflection/count",), "reflections that can be used"),
    Rate("retry_success", ("retry/success",), _RETRIES, "retries that succeed"),
    Rate(
        "retry_improved",
        ("retry/improved",),
        _RETRIES,
        "retries with a higher reward than their base rollout",
    ),
    Rate(
        "retry_gain",
        ("retry/gain",),
        _RETRIES,
        "mean reward of a retry minus its base rollout's",
        unit="reward",
    ),
    Rate("pivot_turn", ("pivot/turns",), _RETRIES, "mean turn that a retry starts from", unit="turns"),
    Rate(
        "pivot_position",
        ("pivot/turns",),
        ("pivot/base_turns",),
        "part of a base rollout before its pivot (sums, not a mean of shares)",
    ),
    Rate(
        "pivot_oracle_agreement",
        ("pivot/oracle_agrees",),
        ("pivot/with_oracle",),
        "pivots that are exactly the oracle's",
    ),
    Rate("pivot_oracle_near", ("pivot/oracle_near",), _QUALITY, "pivots within one turn of the oracle's"),
    Rate(
        "retry_success_right_pivot",
        ("retry/right_pivot_success",),
        ("retry/right_pivot",),
        "retries from a right pivot that succeed",
    ),
    Rate(
        "retry_success_wrong_pivot",
        ("retry/wrong_pivot_success",),
        ("retry/wrong_pivot",),
        "retries from a wrong pivot that succeed",
    ),
    Rate("reflection_accurate", _QUALITY[:1], _QUALITY, "reflections that name the oracle's pivot and cause"),
    Rate("reflection_partial", _QUALITY[1:2], _QUALITY, "reflections that name one of the two"),
    Rate("reflection_wrong", _QUALITY[2:], _QUALITY, "reflections that name neither"),
    Rate(
        "masked", ("tokens/masked",), ("tokens/response",), "sampled tokens of policy rows without gradient"
    ),
    Rate(
        "prefix_pushed_down",
        ("prefix/pushed_down",),
        ("prefix/tokens",),
        "tokens before a pivot that train with a negative advantage",
    ),
    Rate(
        "imitated",
        _IMITATED,
        (TRAINED_TOKENS,),
        "trained tokens that are imitated (groups of one left out)",
    ),
    Rate("answer_stated", ("leak/answer_stated",), ("leak/guidance",), "guidance that states a known answer"),
)
_OF_RATES = [Metric(f"rate/{rate.name}", rate.unit, STEP, rate.meaning) for rate in RATES]
METRICS_BY_NAME: Mapping[str, Metric] = {metric.name: metric for metric in (*_DECLARED, *_OF_RATES)}
# Metrics that result.json leaves out: seconds, and faults that were repaired.
MEASURED = [metric.name for metric in _DECLARED if metric.kind in (TIME, FAULT)]


@lru_cache(maxsize=4096)
def declared(name: str) -> Metric | None:
    """The declaration of the metric ``name``, or of its family (``stop/*`` for ``stop/success``), or None."""
    if name in METRICS_BY_NAME:
        return METRICS_BY_NAME[name]
    families = (metric for metric in METRICS_BY_NAME.values() if metric.name.endswith("/*"))
    return next((family for family in families if name.startswith(family.name[:-1])), None)


def is_total(name: str) -> bool:
    """True if the metric ``name`` is added up over the steps of a run; False also if it is not declared."""
    metric = declared(name)
    return metric is not None and metric.kind is TOTAL


def _sum(counts: Counts, names: tuple[str, ...]) -> float:
    return sum(counts.get(name, 0) for name in names)
