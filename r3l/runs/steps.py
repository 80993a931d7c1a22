"""What a training step leaves, whichever engine trains: its metrics, counted the same way for every method; a line of
metrics.jsonl; and, where a number is not finite, the rows that it was to train on, kept for inspection."""

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
from r3l.core.errors import NonFiniteError
from r3l.core.finite import check_finite
from r3l.core.trajectory import Group, Objective, Trajectory, TrajectoryKind
from r3l.files.json_files import append_jsonl, rewrite_jsonl
from r3l.processes.progress import progress
from r3l.runs.loggers import open_loggers
from r3l.runs.metrics import COLLECT_SECONDS, GENERATED_TOKENS, TRAIN_SUCCESS, step_seconds, with_rounded_times
from r3l.runs.run_dir import METRICS

REFUSED = "refused_batch.jsonl.gz"  # in a run's directory: a line a row
Metrics = dict[str, float]
Record = Callable[[Mapping[str, float]], None]  # takes the metrics of one step; raises NonFiniteError


def of_groups(groups: Sequence[Group], played: Sequence[Trajectory], dropped: int = 0) -> Metrics:
    """Means over base rollouts (what all methods have in common), and what the groups are like.

    ``played``: all that was played in the step (``RolloutContext.trajectories``): the groups of a method need not
    hold every base rollout (Critique-GRPO's refinement takes the place of one). ``dropped``: tasks whose groups were
    refused.
    """
    base = [t for t in played if t.kind is TrajectoryKind.BASE]
    tasks = [
        g
        for g in groups
        if g.objective is Objective.POLICY and any(t.kind is TrajectoryKind.BASE for t in g.trajectories)
    ]
    metrics: Metrics = {
        "train/success": _mean([t.success for t in base]),
        "train/reward": _mean([t.reward for t in base]),
        "train/turns": _mean([len(t.turns) for t in base]),
        "groups/policy": len(tasks),
        "groups/zero_variance": sum(all_equal(g.rewards_G()) for g in tasks),
        "dropped/groups": dropped,
        "entropy": _entropy(groups),
    }
    if reflections := [t.turns[0].response for t in played if t.kind is TrajectoryKind.REFLECTION and t.turns]:
        metrics["reflection/distinct"] = len(set(reflections)) / len(reflections)
    for name in sorted({t.task.group for t in base} - {""}):  # tasks without groups are in none
        members = [t for t in base if t.task.group == name]
        metrics[f"train/success/{name}"] = _mean([t.success for t in members])
    return metrics


def _entropy(groups: Sequence[Group]) -> float:
    """Nats per sampled token of base rollouts: the mean of -log p, an unbiased estimate of the policy's entropy."""
    base = [
        t for g in groups for t in g.trajectories if t.kind is TrajectoryKind.BASE and g.objective is not Objective.SFT
    ]
    logprobs = [x for t in base for turn in t.turns for x in turn.logprobs]
    return -_mean(logprobs)


def of_rows(rows: Sequence[TrajectoryRow]) -> Metrics:
    """Advantages and token shares of a step.

    ``advantage/negative_to_positive`` is sum |A-| / sum A+ over policy rows that train something;
    ``tokens/masked`` are sampled tokens of policy rows without gradient; ``tokens/response`` all of them.
    """
    policy = [row for row in rows if not row.sft]
    advantages = np.asarray([row.mean_advantage for row in policy if row.mask.any()], dtype=float)
    sampled = sum(len(turn.response_ids) for row in policy for turn in row.trajectory.turns)
    negative, positive = -advantages[advantages < 0].sum(), advantages[advantages > 0].sum()
    return {
        "advantage/positive_fraction": _mean(list(advantages > 0)),
        "advantage/negative_to_positive": float(negative / positive) if positive else 0.0,
        "advantage/mean": _mean(list(advantages)),
        "advantage/inverted": _inversions(policy),
        "tokens/response": sampled,
        "tokens/masked": sampled - sum(int(row.mask.sum()) for row in policy),
        **_of_prefixes(policy),
    }


def _of_prefixes(policy: Sequence[TrajectoryRow]) -> Metrics:
    """Sampled tokens of attempts and their retries before the turn that the earliest retry starts from, and those of
    them that are made less likely: they train, and their advantage is negative. Nothing where there is no retry."""
    pivots: dict[tuple[str, int], int] = {}
    for t in (row.trajectory for row in policy):
        if t.kind is not TrajectoryKind.BASE:
            attempt = t.task.address, t.member
            pivots[attempt] = min(pivots.get(attempt, t.restart_turn), t.restart_turn)
    if not pivots:
        return {}
    counts: Metrics = {"prefix/tokens": 0, "prefix/pushed_down": 0}
    turns: Counter[tuple[Any, ...]] = Counter()  # of a trajectory, in the rows so far: a row may be a single turn
    for row in policy:
        t = row.trajectory
        key = (t.task.address, t.member, t.kind, t.attempt)
        prefix = t.turns[: max(0, pivots.get((t.task.address, t.member), 0) - turns[key])]
        turns[key] += len(t.turns)
        length = sum(len(turn.prompt_ids) + len(turn.response_ids) for turn in prefix)
        counts["prefix/tokens"] += sum(len(turn.response_ids) for turn in prefix)
        counts["prefix/pushed_down"] += int((row.mask * (np.asarray(row.advantage) < 0))[:length].sum())
    return counts


def of_training(rows: Sequence[Row], trainable: Sequence[Row]) -> Metrics:
    """Tokens and rows of an update with the ``trainable`` ones of ``rows``; trained tokens by kind."""
    metrics: Metrics = {
        "tokens/trained": sum(int(r.mask.sum()) for r in trainable),
        "tokens/forwarded": sum(len(r.ids) for r in trainable),
        "rows/trained": len(trainable),
        "rows/no_signal": len(rows) - len(trainable),
    }
    for row in trainable:
        key = f"trained/{row.kind}"
        metrics[key] = metrics.get(key, 0) + int(row.mask.sum())
    return metrics


def _inversions(policy: Sequence[TrajectoryRow]) -> int:
    """Rows that get less than another row of their task with a lower reward (audit A-2)."""
    scores = [(row.trajectory.task.address, row.trajectory.reward, row.mean_advantage) for row in policy]
    best: dict[tuple[str, float], float] = {}
    for task, reward, advantage in scores:
        best[task, reward] = max(best.get((task, reward), -np.inf), advantage)
    return sum(
        any(other == task and r < reward and a > advantage + 1e-9 for (other, r), a in best.items())
        for task, reward, advantage in scores
    )


def _mean(values: Sequence[float]) -> float:
    """Exact before its one division: the same whatever the order."""
    return math.fsum(values) / len(values) if len(values) else 0.0


@contextmanager
def recording(run: Run, run_dir: Path, loggers: Sequence[str], done: int) -> Iterator[Record]:
    """A function that records each step; ``done`` steps are there already."""
    steps = run.train.steps
    label = f"{run.env} {run.method} seed {run.seed}"
    with (
        open_loggers(loggers, run_dir, run.model_dump(mode="json")) as log,
        progress(label, steps, done, lines=steps) as advance,
    ):

        def record(metrics: Mapping[str, float]) -> None:
            for name, value in metrics.items():
                check_finite(f"method {run.method}, step {metrics['step']}: metric {name!r}", value)
            metrics = with_rounded_times(metrics)
            append_jsonl(run_dir / METRICS, metrics)
            log(metrics)
            advance(_note(metrics))

        yield record


def _note(metrics: Mapping[str, float]) -> str:
    tokens_per_s = metrics.get(GENERATED_TOKENS, 0) / max(metrics[COLLECT_SECONDS], 1e-9)
    return f"success {metrics[TRAIN_SUCCESS]:.2f}  {tokens_per_s:.0f} tok/s  {step_seconds(metrics):.1f} s/step"


@contextmanager
def keeping_batch(run: Run, step: int, folder: Path, rows: Sequence[TrajectoryRow]) -> Iterator[None]:
    """Update with ``rows`` in the block. They are checked first; refused, there or later, they are kept in ``folder``.

    Raises NonFiniteError naming method and step too.
    """
    try:
        for number, row in enumerate(rows):
            check_row(number, row)
        yield
    except NonFiniteError as error:
        file = folder / REFUSED
        rewrite_jsonl(file, [_line(number, row) for number, row in enumerate(rows)])
        raise NonFiniteError(
            f"method {run.method}, step {step}: {error}. The step's rows are kept in {file}; checkpoints are those of "
            "earlier steps. Look there for the cause, then run again with a lower train.lr or a corrected method"
        ) from error


def check_row(number: int, row: TrajectoryRow) -> None:
    """Raises NonFiniteError naming row and task."""
    numbers = {
        "reward": row.trajectory.reward,
        "advantage": row.advantage,
        "token weight": row.weight,
        "log-prob of sampling": row.old_logprobs,
    }
    for name, values in numbers.items():
        check_finite(f"{name} of row {number} ({row.name})", values)


def _line(number: int, row: TrajectoryRow) -> dict[str, Any]:
    t = row.trajectory
    return {
        "row": number,
        "task": t.task.id,
        "kind": t.kind,
        "member": t.member,
        "attempt": t.attempt,
        "reward": t.reward,
        "advantage": np.asarray(row.advantage).tolist(),
        "ids": row.ids.tolist(),
        "mask": row.mask.tolist(),
        "weight": row.weight.tolist(),
        "old_logprobs": row.old_logprobs.tolist(),
    }
