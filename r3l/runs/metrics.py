"""Every metric that a training step reports, declared once: name, unit, kind, meaning.

What is added up over a run, what a rate is made from, and the site's page of metrics all come from the
tables below; a test runs steps of every method and refuses a key that is not declared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator

from r3l.files.json_files import Number, read_jsonl
from r3l.runs.run_dir import METRICS as FILE

Counts = Mapping[str, float]


class Kind(StrEnum):
    """How the steps of a run are put together."""

    TOTAL = "total"  # a count, added up over a run
    TIME = "time"  # added up by readers only: a result holds no time, so that it repeats byte for byte
    FAULT = "fault"  # as a time: after a fault, a result is what it would have been without
    STEP = "step"  # a mean, a share or a state of one step, never added up


@dataclass(frozen=True)
class Metric:
    """A key of metrics.jsonl. A ``name`` that ends in ``/*`` is a family: one metric for each of its
    members.
    """

    name: str
    unit: str
    kind: Kind
    meaning: str


@dataclass(frozen=True)
class Rate:
    """``rate/<name>``: the sum of the counts ``part`` per sum of the counts ``whole`` without those of
    ``less``.
    """

    name: str
    part: tuple[str, ...]
    whole: tuple[str, ...]
    meaning: str
    less: tuple[str, ...] = ()
    unit: str = "share"

    def of(self, counts: Counts) -> float | None:
        whole = _sum(counts, self.whole) - _sum(counts, self.less)
        return _sum(counts, self.part) / whole if whole else None


GENERATED_TOKENS, TRAINED_TOKENS = "tokens/generated", "tokens/trained"
COLLECT_SECONDS, TRAIN_SECONDS = "seconds/collect", "seconds/train"
TRAIN_SUCCESS = "train/success"

TOTAL, TIME, FAULT, STEP = Kind.TOTAL, Kind.TIME, Kind.FAULT, Kind.STEP
_DECLARED = (
    Metric("step", "-", STEP, "number of the update, from 1"),
    Metric("train/success", "share", STEP, "base rollouts that succeed"),
    Metric("train/success/*", "share", STEP, "those of one task group"),
    Metric("train/reward", "reward", STEP, "mean of base rollouts"),
    Metric("train/turns", "turns", STEP, "mean of base rollouts"),
    Metric("groups/policy", "groups", STEP, "of base rollouts that are weighted by advantages"),
    Metric("groups/zero_variance", "groups", STEP, "those of them whose rewards are all equal"),
    Metric("entropy", "nats/token", STEP, "mean -log p of the sampled tokens of base rollouts"),
    Metric("advantage/mean", "advantage", STEP, "mean over policy rows that train"),
    Metric("advantage/positive_fraction", "share", STEP, "policy rows that train with a positive advantage"),
    Metric("advantage/negative_to_positive", "ratio", STEP, "sum of negative advantages per sum of positive ones"),
    Metric("advantage/inverted", "rows", STEP, "policy rows below a row of their task that has a lower reward (A-2)"),
    Metric("loss", "loss", STEP, "what the update descends"),
    Metric("loss/policy", "loss", STEP, "its advantage-weighted part"),
    Metric("loss/sft", "loss", STEP, "mean -log p of imitated tokens, before its coefficient"),
    Metric("loss/kl", "nats/token", STEP, "KL to the base checkpoint, before its coefficient"),
    Metric("clip_fraction", "share", STEP, "policy tokens whose importance ratio is clipped"),
    Metric("microbatch/*", "-", STEP, "part of the loss or clip fraction as verl has it: a mean over micro-batches"),
    Metric("grad_norm", "norm", STEP, "of the gradient, before clipping"),
    Metric("kl_to_start", "nats/token", STEP, "k3 against the base checkpoint, every `train.kl_metric_every` steps"),
    Metric("logprob_mismatch/mean", "nats", STEP, "a token's log-prob in training against sampling: mean difference"),
    Metric("logprob_mismatch/max", "nats", STEP, "the largest difference"),
    Metric("distilled/nll", "nats", STEP, "-log p, without the hint, of distilled tokens that train: mean"),
    Metric("distilled/nll_p99", "nats", STEP, "the 99th percentile"),
    Metric("distilled/unlikely", "share", STEP, "those with log p below -5"),
    Metric("distilled/hint_gap", "nats", STEP, "their log p when sampled, with the hint, less that without: mean"),
    Metric("imitated/nll", "nats", STEP, "-log p of imitated tokens, each with its hint: mean"),
    Metric("imitated/nll_p99", "nats", STEP, "the 99th percentile"),
    Metric("imitated/unlikely", "share", STEP, "those with log p below -5"),
    Metric(
        "handover/mean",
        "nats",
        STEP,
        "a token's log-prob in vLLM against the model, after the weights were synchronised: mean",
    ),
    Metric("handover/max", "nats", STEP, "the largest difference"),
    Metric("weights/behind", "steps", STEP, "updates that the sampling weights lack (trinity)"),
    Metric("rollouts", "rollouts", TOTAL, "episodes played: base rollouts and retries"),
    Metric("env_steps", "actions", TOTAL, "taken in environments"),
    Metric("env_failed", "rollouts", TOTAL, "ended by an error inside the environment"),
    Metric("sampling_rounds", "rounds", TOTAL, "of drawing tasks; more than one a step with DAPO's dynamic sampling"),
    Metric("tokens/generated", "tokens", TOTAL, "sampled in all"),
    Metric("tokens/rollout", "tokens", TOTAL, "sampled in base rollouts"),
    Metric("tokens/reflection", "tokens", TOTAL, "sampled in reflections"),
    Metric("tokens/critique", "tokens", TOTAL, "sampled in critiques"),
    Metric("tokens/retry", "tokens", TOTAL, "sampled in retries"),
    Metric("tokens/judge", "tokens", TOTAL, "written by a judge, as its server counts them; in no other sum"),
    Metric("tokens/cut", "tokens", TOTAL, "sampled in vain, after a line that ended a response (trinity)"),
    Metric("tokens/response", "tokens", TOTAL, "sampled tokens of policy rows"),
    Metric("tokens/masked", "tokens", TOTAL, "those of them that carry no gradient"),
    Metric("prefix/tokens", "tokens", TOTAL, "of attempts and retries, sampled before the earliest retry's turn"),
    Metric("prefix/pushed_down", "tokens", TOTAL, "those of them that train with a negative advantage"),
    Metric("tokens/trained", "tokens", TOTAL, "that carry gradient, imitated ones included"),
    Metric("tokens/forwarded", "tokens", TOTAL, "of the rows of an update, prompts included"),
    Metric("prompt/rollout", "tokens", TOTAL, "read for base rollouts, each once a dialog"),
    Metric("prompt/reflection", "tokens", TOTAL, "read for reflections"),
    Metric("prompt/critique", "tokens", TOTAL, "read for critiques"),
    Metric("prompt/retry", "tokens", TOTAL, "read for retries"),
    Metric("prompt/judge", "tokens", TOTAL, "read by a judge, as its server counts them"),
    Metric("trained/*", "tokens", TOTAL, "that carry gradient, by the kind of their trajectory; `sft`: imitated"),
    Metric("rows/trained", "rows", TOTAL, "in the update"),
    Metric("rows/no_signal", "rows", TOTAL, "left out of it: advantage 0, or no token that trains"),
    Metric("reflection/count", "reflections", TOTAL, "asked for"),
    Metric("reflection/valid", "reflections", TOTAL, "that can be used"),
    Metric("reflection/distinct", "share", STEP, "different texts among all: few no longer read the attempt"),
    Metric("reflection/coerced", "reflections", TOTAL, "valid, with a pivot that was no integer as written"),
    Metric("reflection/invalid/*", "reflections", TOTAL, "that cannot be used, by reason"),
    Metric("reflection/outcome/*", "reflections", TOTAL, "valid ones, by the outcome that they state"),
    Metric("reflection_quality/accurate", "reflections", TOTAL, "that name the oracle's pivot (+-1 turn) and cause"),
    Metric("reflection_quality/partial", "reflections", TOTAL, "that name one of the two"),
    Metric("reflection_quality/wrong", "reflections", TOTAL, "that name neither"),
    Metric("reflection/by_model", "reflections", TOTAL, "written by the policy"),
    Metric("reflection/by_environment", "reflections", TOTAL, "written by the environment's own critic"),
    Metric("reflection/by_judge", "reflections", TOTAL, "written by a judge"),
    Metric("critique/by_model", "critiques", TOTAL, "written by the policy"),
    Metric("critique/by_environment", "critiques", TOTAL, "written by the environment's own critic"),
    Metric("critique/by_judge", "critiques", TOTAL, "written by a judge"),
    Metric("critique/not_json", "critiques", TOTAL, "that are not the JSON asked for and guide by their text"),
    Metric("critique/invalid/*", "critiques", TOTAL, "that cannot be used, by reason"),
    Metric("judge/requests", "requests", TOTAL, "sent to a judge, repetitions included"),
    Metric("judge/repeated/*", "requests", TOTAL, "those that were sent again, by reason"),
    Metric("judge/missing/*", "requests", TOTAL, "those that were never answered with a whole text, by reason"),
    Metric("judge/shortened", "requests", TOTAL, "those for whose response the server had less room than asked"),
    Metric("judge/overlong", "requests", TOTAL, "those whose response has more tokens than were asked for"),
    Metric("judge/end_marks", "requests", TOTAL, "those whose text ended with a control token, which was taken off"),
    Metric("judge/uncounted", "requests", TOTAL, "those that were answered without the number of tokens"),
    Metric("judge/replaced", "characters", TOTAL, "of a judge's answers that were no Unicode"),
    Metric("retry/count", "retries", TOTAL, "played"),
    Metric("retry/success", "retries", TOTAL, "that succeed"),
    Metric("retry/improved", "retries", TOTAL, "with a higher reward than their base"),
    Metric("retry/worse", "retries", TOTAL, "with a lower reward than their base"),
    Metric("retry/gain", "reward", TOTAL, "rewards of retries minus those of their bases"),
    Metric("retry/after_failure", "retries", TOTAL, "of a failed base"),
    Metric("retry/rescued", "retries", TOTAL, "that succeed where their base failed"),
    Metric("retry/right_pivot", "retries", TOTAL, "from a turn within one of the oracle's pivot"),
    Metric("retry/right_pivot_success", "retries", TOTAL, "those of them that succeed"),
    Metric("retry/wrong_pivot", "retries", TOTAL, "from another turn than the oracle's"),
    Metric("retry/wrong_pivot_success", "retries", TOTAL, "those of them that succeed"),
    Metric("adaptive/bases", "rollouts", TOTAL, "base rollouts of adaptive R3L"),
    Metric("adaptive/reflected", "rollouts", TOTAL, "base rollouts that were reflected on"),
    Metric("adaptive/failures_reflected", "rollouts", TOTAL, "failed base rollouts that were reflected on"),
    Metric("adaptive/fresh", "pairs", TOTAL, "pairs of a failed base rollout and another one of its task"),
    Metric("adaptive/fresh_solved", "pairs", TOTAL, "such pairs whose other rollout succeeds"),
    Metric("pivot/turns", "turns", TOTAL, "of bases before the pivots of their retries"),
    Metric("pivot/base_turns", "turns", TOTAL, "of those bases in all"),
    Metric("pivot/with_oracle", "reflections", TOTAL, "with a pivot, where the oracle has one too"),
    Metric("pivot/oracle_agrees", "reflections", TOTAL, "that name the oracle's very pivot"),
    Metric("pivot/oracle_near", "reflections", TOTAL, "that name it within a turn"),
    Metric("leak/guidance", "texts", TOTAL, "reflections and critiques on a task that has a known answer"),
    Metric("leak/answer_stated", "texts", TOTAL, "those of them that state the answer"),
    Metric("leak/quoted", "texts", TOTAL, "and it stands in the problem or the attempt too"),
    Metric("leak/told", "texts", TOTAL, "and it stands nowhere else; a teacher's is dropped (`*/invalid/leak`)"),
    Metric("text/replaced", "characters", TOTAL, "of observations and reflections that are no Unicode: now U+FFFD"),
    Metric("stop/*", "rollouts", TOTAL, "by what ended them"),
    Metric("dropped/tasks", "tasks", TOTAL, "whose exploration failed (trinity)"),
    Metric("dropped/groups", "tasks", TOTAL, "refused by the method (DAPO's dynamic sampling)"),
    Metric("dropped/rejected", "rollouts", TOTAL, "below RAFT's threshold"),
    Metric("dropped/no_oracle_pivot", "retries", TOTAL, "not played for want of an oracle's pivot"),
    Metric("dropped/workers", "processes", FAULT, "environment workers that died and were replaced"),
    Metric("seconds/collect", "s", TIME, "playing, reflecting, retrying; whole"),
    Metric("seconds/rollout", "s", TIME, "sampling base rollouts"),
    Metric("seconds/feedback", "s", TIME, "sampling reflections and critiques"),
    Metric("seconds/retry", "s", TIME, "sampling retries"),
    Metric("seconds/train", "s", TIME, "the update"),
)
_QUALITY = ("reflection_quality/accurate", "reflection_quality/partial", "reflection_quality/wrong")
_IMITATED = ("trained/sft", "trained/reflection", "trained/critique")
_RETRIES = ("retry/count",)
RATES = (
    Rate("retry_trigger", _RETRIES, ("rollouts",), "retries per base rollout", less=_RETRIES, unit="ratio"),
    Rate("reflection_valid", ("reflection/valid",), ("reflection/count",), "reflections that can be used"),
    Rate("retry_success", ("retry/success",), _RETRIES, "retries that succeed"),
    Rate("retry_improved", ("retry/improved",), _RETRIES, "retries with a higher reward than their base"),
    Rate("retry_gain", ("retry/gain",), _RETRIES, "mean of a retry's reward minus its base's", unit="reward"),
    Rate("pivot_turn", ("pivot/turns",), _RETRIES, "mean turn that a retry starts from", unit="turns"),
    Rate("pivot_position", ("pivot/turns",), ("pivot/base_turns",), "of a base before its pivot; long ones weigh more"),
    Rate("pivot_oracle_agreement", ("pivot/oracle_agrees",), ("pivot/with_oracle",), "pivots that are the oracle's"),
    Rate("pivot_oracle_near", ("pivot/oracle_near",), _QUALITY, "pivots within a turn of the oracle's"),
    Rate("retry_success_right_pivot", ("retry/right_pivot_success",), ("retry/right_pivot",), "from a right pivot"),
    Rate("retry_success_wrong_pivot", ("retry/wrong_pivot_success",), ("retry/wrong_pivot",), "from a wrong pivot"),
    Rate("reflection_accurate", _QUALITY[:1], _QUALITY, "reflections that name the oracle's pivot and cause"),
    Rate("reflection_partial", _QUALITY[1:2], _QUALITY, "reflections that name one of the two"),
    Rate("reflection_wrong", _QUALITY[2:], _QUALITY, "reflections that name neither"),
    Rate("masked", ("tokens/masked",), ("tokens/response",), "sampled tokens of policy rows without gradient"),
    Rate("prefix_pushed_down", ("prefix/pushed_down",), ("prefix/tokens",), "tokens before a pivot made less likely"),
    Rate("imitated", _IMITATED, ("tokens/trained",), "trained tokens that are imitated, groups of one left out"),
    Rate("answer_stated", ("leak/answer_stated",), ("leak/guidance",), "guidance that states a known answer"),
)
METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (*_DECLARED, *(Metric(f"rate/{rate.name}", rate.unit, STEP, rate.meaning) for rate in RATES))
}


def _with_step(row: Any) -> Any:
    if isinstance(row, dict) and not isinstance(row.get("step"), int):
        raise ValueError("the step is missing, or no whole number")
    return row


# One line of metrics.jsonl: the declared metrics of one step.
StepMetrics: Any = Annotated[dict[str, Number], BeforeValidator(_with_step)]


def read_metrics(run_dir: Path) -> list[dict[str, float]]:
    """The metrics of every step of a run, in order; [] before the first step. Raises DataError for a
    damaged line.
    """
    return read_jsonl(run_dir / FILE, StepMetrics)


@lru_cache(maxsize=4096)
def declared(name: str) -> Metric | None:
    """The declaration of a metric: its own, or that of the family it is a member of."""
    family = next((m for m in METRICS.values() if m.name.endswith("/*") and name.startswith(m.name[:-1])), None)
    return METRICS.get(name, family)


def is_total(name: str) -> bool:
    """Whether a metric is added up over a run's steps into its result."""
    metric = declared(name)
    return metric is not None and metric.kind is TOTAL


def members(counts: Counts, family: str) -> dict[str, float]:
    """The metrics of the family ``family/*`` by their last name."""
    return {name.removeprefix(f"{family}/"): n for name, n in counts.items() if name.startswith(f"{family}/")}


def summed(rows: Iterable[Counts]) -> Counter[str]:
    """Everything of several steps added up, for what is then made from its counts."""
    total: Counter[str] = Counter()
    for row in rows:
        total.update(row)
    return total


def totals(rows: Iterable[Counts]) -> Counter[str]:
    """The budget of a run: of its steps what is added up over it."""
    return summed({name: value for name, value in row.items() if is_total(name)} for row in rows)


def faults(rows: Iterable[Counts]) -> Counter[str]:
    """What failed and was repaired, added up over steps."""
    return summed({name: n for name, n in row.items() if (m := declared(name)) and m.kind is FAULT} for row in rows)


def rates(counts: Counts) -> dict[str, float | None]:
    """Every rate of the counts of a step, or of the totals of a run; None where nothing was counted."""
    return {rate.name: rate.of(counts) for rate in RATES}


def with_rates(row: Counts) -> dict[str, float]:
    """A step's metrics and the rates that they amount to."""
    return {**row, **{f"rate/{name}": value for name, value in rates(row).items() if value is not None}}


def base_success(counts: Counts) -> float | None:
    """The share of base rollouts that succeed, of counts as in :func:`rates`; None where there were none.

    Of one step it is ``train/success``, but also right for runs of Critique-GRPO that were stored when that
    metric left out rollouts which a refinement had replaced.
    """
    bases = _sum(counts, ("rollouts",)) - _sum(counts, _RETRIES)
    return (counts.get("stop/success", 0) - counts.get("retry/success", 0)) / bases if bases else None


def with_rounded_times(row: Counts) -> dict[str, float]:
    """A step's metrics, its times to a tenth of a millisecond: further digits differ from run to run, and
    take room.
    """
    return {name: round(n, 4) if (m := declared(name)) and m.kind is TIME else n for name, n in row.items()}


def step_seconds(row: Counts) -> float:
    """What a step took, without checkpoints and evaluation."""
    return row.get(COLLECT_SECONDS, 0) + row.get(TRAIN_SECONDS, 0)


def _sum(counts: Counts, names: tuple[str, ...]) -> float:
    return sum(counts.get(name, 0) for name in names)
