"""What a step was made of, counted the same way for every method and engine (names: r3l.runs.metrics)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from r3l.core.trajectory import Group, Objective, Trajectory, TrajectoryKind

if TYPE_CHECKING:
    from r3l.core.batching import Row, TrajectoryRow

Metrics = dict[str, float]


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
        "groups/zero_variance": sum(float(g.rewards_G().std() == 0) for g in tasks),
        "dropped/groups": dropped,
        "entropy": _entropy(groups),
    }
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
    }


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
    scores = [(row.trajectory.task.id, row.trajectory.reward, row.mean_advantage) for row in policy]
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
