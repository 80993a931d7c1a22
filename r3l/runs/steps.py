"""Metrics and records of a training step, for either engine.

The metrics are counted in the same way for every method. ``recording`` writes each step to metrics.jsonl
and to the loggers; ``keeping_batch`` keeps the rows of an update that meets a number that is not finite,
for inspection.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from r3l.config import Run
from r3l.core.advantages import all_equal
from r3l.core.batching import Row, TrajectoryRow
from r3l.core.errors import EngineError, NonFiniteError
from r3l.core.finite import check_finite
from r3l.core.trajectory import Group, Objective, Trajectory, TrajectoryKind
from r3l.files.json_files import append_jsonl, rewrite_jsonl
from r3l.processes.progress import progress
from r3l.runs.loggers import Log, open_loggers
from r3l.runs.metrics import (
    COLLECT_SECONDS,
    FORWARDED_TOKENS,
    GENERATED_TOKENS,
    TEACHER_CONTEXTS,
    TRAIN_SUCCESS,
    TRAINED_TOKENS,
)
from r3l.runs.run_dir import METRICS
from r3l.runs.step_metrics import step_seconds, with_rounded_times

MAX_FAILED = 0.5  # share of a step's rollouts that an environment's own errors may end; our choice
REFUSED = "refused_batch.jsonl.gz"  # in a run's directory: one line per row
Metrics = dict[str, float]
RecordStep = Callable[[Mapping[str, float]], None]  # takes the metrics of one step; raises NonFiniteError


def check_failed_episodes(run: Run, step: int, played: Sequence[Trajectory]) -> None:
    """Raise EngineError if errors inside the environment ended more than half of a step's rollouts.

    ``played``: all trajectories of the step; reflections and critiques are not counted. The constant
    MAX_FAILED is this share.
    """
    rollouts = [t for t in played if t.stop_reason is not None]  # not reflections
    failed = [t for t in rollouts if t.failed]
    if len(failed) > MAX_FAILED * len(rollouts):
        raise EngineError(
            f"environment {run.env!r}, step {step}: {len(failed)} of {len(rollouts)} rollouts ended in the "
            f"environment's own error, the first in task {failed[0].task.id}: {failed[0].failed}. Such "
            f"rollouts are in no group, and from more than {MAX_FAILED:.0%} of a step nothing is learned. "
            "The steps before are kept: correct the environment, then give the command again, which resumes"
        )


def group_metrics(groups: Sequence[Group], played: Sequence[Trajectory], dropped: int = 0) -> Metrics:
    """Means of base rollouts (``train/``, success by task group too), counts of groups, and entropy.

    ``groups/policy``: policy groups with base rollouts; ``groups/zero_variance``: how many of them have equal
    rewards; ``dropped/groups``: the argument ``dropped``, the number of tasks whose groups were refused.
    ``entropy``: mean -log p (nats) of sampled tokens of base rollouts in ``groups``, SFT groups excluded.
    ``reflection/distinct``: share of different reflections, if there are any. ``played``: all trajectories of
    the step; ``groups`` may lack some base rollouts (Critique-GRPO replaces one by its refinement). Failed
    rollouts are left out; a mean without values is 0.
    """
    base = [t for t in played if t.kind is TrajectoryKind.BASE and not t.failed]
    policy = [group for group in groups if group.objective is Objective.POLICY]
    weighted = [group for group in policy if any(t.kind is TrajectoryKind.BASE for t in group.trajectories)]

    # The mean of -log p over sampled tokens is an unbiased estimate of the policy's entropy.
    logprobs: list[float] = []
    for group in groups:
        if group.objective is not Objective.SFT:
            for t in group.trajectories:
                if t.kind is TrajectoryKind.BASE:
                    logprobs += (x for turn in t.turns for x in turn.logprobs)

    metrics: Metrics = {
        TRAIN_SUCCESS: _mean([t.success for t in base]),
        "train/reward": _mean([t.reward for t in base]),
        "train/turns": _mean([len(t.turns) for t in base]),
        "groups/policy": len(weighted),
        "groups/zero_variance": sum(all_equal(group.rewards_G()) for group in weighted),
        "dropped/groups": dropped,
        "entropy": -_mean(logprobs),
    }
    reflections = [t.turns[0].response for t in played if t.kind is TrajectoryKind.REFLECTION and t.turns]
    if reflections:
        metrics["reflection/distinct"] = len(set(reflections)) / len(reflections)
    for name in sorted({t.task.group for t in base} - {""}):  # "": a task without a group
        metrics[f"train/success/{name}"] = _mean([t.success for t in base if t.task.group == name])
    return metrics


def teacher_metrics(taught: Sequence[Trajectory], tokenizer: Any) -> Metrics:
    """``teacher/contexts``: the number of ``taught``, the trajectories with a teacher.

    ``teacher/with_feedback``: for how many of them the hint occurs in the decoded tokens of the teacher's
    prompts (white space ignored), since a chat template or a limit may drop a text. An empty hint does not
    count.
    """
    found = 0
    for t in taught:
        ids = [i for turn in t.turns for i in turn.teacher_prompt_ids or ()]
        context = "".join(tokenizer.decode(ids).split())
        hint = "".join(tokenizer.decode(tokenizer.encode(t.hint, add_special_tokens=False)).split())
        found += bool(hint) and hint in context
    return {TEACHER_CONTEXTS: len(taught), "teacher/with_feedback": found}


def row_metrics(rows: Sequence[TrajectoryRow]) -> Metrics:
    """Advantages and token counts of the rows of a step.

    Policy rows are rows that are not imitated. ``advantage/mean``, ``/positive_fraction`` and
    ``/negative_to_positive`` (sum |A-| / sum A+, 0 without a positive one) are over policy rows with a token
    that trains; ``/inverted`` counts policy rows with a higher reward but a lower advantage than another row
    of their task. ``tokens/response``: sampled tokens of policy rows; ``tokens/masked``: how many of these
    have no gradient.
    """
    policy = [row for row in rows if not row.sft]
    advantages = np.asarray([row.mean_advantage for row in policy if row.mask.any()], dtype=float)
    negative = -advantages[advantages < 0].sum()
    positive = advantages[advantages > 0].sum()
    sampled = sum(len(turn.response_ids) for row in policy for turn in row.trajectory.turns)

    # Inverted rows: some row of the same task has a lower reward and a higher advantage (audit A-2).
    scores = [(row.trajectory.task.address, row.trajectory.reward, row.mean_advantage) for row in policy]
    best: dict[tuple[str, float], float] = {}  # highest advantage by task and reward
    for task, reward, advantage in scores:
        best[task, reward] = max(best.get((task, reward), -np.inf), advantage)
    inverted = sum(
        any(other == task and r < reward and a > advantage + 1e-9 for (other, r), a in best.items())
        for task, reward, advantage in scores
    )
    return {
        "advantage/positive_fraction": _mean(list(advantages > 0)),
        "advantage/negative_to_positive": float(negative / positive) if positive else 0.0,
        "advantage/mean": _mean(list(advantages)),
        "advantage/inverted": inverted,
        "tokens/response": sampled,
        "tokens/masked": sampled - sum(int(row.mask.sum()) for row in policy),
        **_prefix_metrics(policy),
    }


def _prefix_metrics(policy: Sequence[TrajectoryRow]) -> Metrics:
    """Sampled tokens of attempts and retries before the earliest retry's first turn; {} without retries.

    ``prefix/pushed_down`` counts the tokens that train with a negative advantage, so become less likely.
    """
    # Reflections and critiques may be policy rows too (sft_mode: reward1_singleton), but restart nothing.
    feedback = (TrajectoryKind.REFLECTION, TrajectoryKind.CRITIQUE)
    played = [row for row in policy if row.trajectory.kind not in feedback]

    # The earliest pivot of each attempt.
    pivots: dict[tuple[str, int], int] = {}
    for t in (row.trajectory for row in played):
        if t.kind is not TrajectoryKind.BASE:
            attempt = t.task.address, t.member
            pivots[attempt] = min(pivots.get(attempt, t.restart_turn), t.restart_turn)
    if not pivots:
        return {}

    counts: Metrics = {"prefix/tokens": 0, "prefix/pushed_down": 0}
    turns_seen: Counter[tuple[Any, ...]] = Counter()  # by trajectory: a row may hold a single turn of it
    for row in played:
        t = row.trajectory
        key = (t.task.address, t.member, t.kind, t.attempt)
        prefix = t.turns[: max(0, pivots.get((t.task.address, t.member), 0) - turns_seen[key])]
        turns_seen[key] += len(t.turns)
        length = sum(len(turn.prompt_ids) + len(turn.response_ids) for turn in prefix)
        pushed_down = row.mask * (np.asarray(row.advantage) < 0)
        counts["prefix/tokens"] += sum(len(turn.response_ids) for turn in prefix)
        counts["prefix/pushed_down"] += int(pushed_down[:length].sum())
    return counts


def update_metrics(rows: Sequence[Row], trainable: Sequence[Row]) -> Metrics:
    """Counts of an update: ``tokens/trained``, ``tokens/forwarded`` (with prompts), ``rows/trained``.

    ``trainable``: the rows among ``rows`` that train; ``rows/no_signal`` counts the others.
    ``trained/KIND``: trained tokens by kind of row: the trajectory's kind, or "sft" for rows to imitate.
    """
    metrics: Metrics = {
        TRAINED_TOKENS: sum(int(r.mask.sum()) for r in trainable),
        FORWARDED_TOKENS: sum(len(r.ids) for r in trainable),
        "rows/trained": len(trainable),
        "rows/no_signal": len(rows) - len(trainable),
    }
    for row in trainable:
        key = f"trained/{row.kind}"
        metrics[key] = metrics.get(key, 0) + int(row.mask.sum())
    return metrics


def _mean(values: Sequence[float]) -> float:
    """The mean, by an exact sum: the same for any order of the values. 0 without values."""
    return math.fsum(values) / len(values) if len(values) else 0.0


@contextmanager
def recording(run: Run, run_dir: Path, loggers: Sequence[str | Log], done: int) -> Iterator[RecordStep]:
    """Open the loggers and the progress of a training, ``done`` steps of which are finished.

    Yields a function that appends the metrics of a step (its number as ``step``) to metrics.jsonl, with
    seconds rounded, gives them to the loggers, and shows success, tokens and seconds on the terminal. It
    raises NonFiniteError for a metric that is not finite, before anything is written.
    """
    steps = run.train.steps
    label = f"{run.env} {run.method} seed {run.seed}"
    with (
        open_loggers(loggers, run_dir) as log,
        progress(label, steps, done, lines=steps) as advance,
    ):

        def record(metrics: Mapping[str, float]) -> None:
            # A step with a number that is not finite is an error before it is written.
            for name, value in metrics.items():
                check_finite(f"method {run.method}, step {metrics['step']}: metric {name!r}", value)
            metrics = with_rounded_times(metrics)
            append_jsonl(run_dir / METRICS, metrics)
            log(metrics)
            tokens_per_s = metrics.get(GENERATED_TOKENS, 0) / max(metrics[COLLECT_SECONDS], 1e-9)
            seconds = step_seconds(metrics)
            advance(f"success {metrics[TRAIN_SUCCESS]:.2f}  {tokens_per_s:.0f} tok/s  {seconds:.1f} s/step")

        yield record


@contextmanager
def keeping_batch(run: Run, step: int, folder: Path, rows: Sequence[TrajectoryRow]) -> Iterator[None]:
    """Check that ``rows`` are finite, then run the block, which makes the update of a step.

    If a row's reward, advantage, weight or log-prob is not finite, or the block raises NonFiniteError, all
    rows are written to refused_batch.jsonl.gz in ``folder``, and NonFiniteError with method and step is
    raised.
    """
    try:
        # Before the update, so that the error names the row; the loss is a sum over rows.
        for number, row in enumerate(rows):
            numbers = {
                "reward": row.trajectory.reward,
                "advantage": row.advantage,
                "token weight": row.weight,
                "log-prob of sampling": row.old_logprobs,
            }
            for name, values in numbers.items():
                check_finite(f"{name} of row {number} ({row.name})", values)
        yield
    except NonFiniteError as error:
        file = folder / REFUSED
        refused = [
            {
                "row": number,
                "task": row.trajectory.task.id,
                "kind": row.trajectory.kind,
                "member": row.trajectory.member,
                "attempt": row.trajectory.attempt,
                "reward": row.trajectory.reward,
                "advantage": np.asarray(row.advantage).tolist(),
                "ids": row.ids.tolist(),
                "mask": row.mask.tolist(),
                "weight": row.weight.tolist(),
                "old_logprobs": row.old_logprobs.tolist(),
            }
            for number, row in enumerate(rows)
        ]
        rewrite_jsonl(file, refused)
        raise NonFiniteError(
            f"method {run.method}, step {step}: {error}. The step's rows are kept in {file}; checkpoints "
            "are from earlier steps. Find the cause there, then run again with a lower train.lr or a "
            "corrected method"
        ) from error
