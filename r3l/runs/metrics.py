"""What a step cost and what it was made of: the words in which every method and every engine reports it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from r3l.core.trajectory import Group, Trajectory

if TYPE_CHECKING:
    from r3l.core.batching import Row

Metrics = dict[str, float]
TOTALS = (  # keys that are added up over a run
    "rollouts",
    "env_steps",
    "sampling_rounds",
    "tokens/",
    "prompt/",
    "trained/",
    "reflection/",
    "critique/",
    "retry/",
    "pivot/",
    "diagnosis/",
    "leak/",
    "stop/",
    "dropped/",
    "rows/",
    "seconds/",
)


def is_total(key: str) -> bool:
    """Whether a metric is added up over a run's steps (times are not: a result holds no time)."""
    return key.startswith(TOTALS) and not key.startswith("seconds/")


DIAGNOSES = ("diagnosis/accurate", "diagnosis/partial", "diagnosis/wrong")
RATES: Mapping[str, tuple[Sequence[str], Sequence[str]]] = {  # name: (sum of these keys, per sum of those)
    "reflection_valid": (("reflection/valid",), ("reflection/count",)),
    "retry_success": (("retry/success",), ("retry/count",)),
    "retry_improved": (("retry/improved",), ("retry/count",)),
    "retry_gain": (("retry/gain",), ("retry/count",)),
    "pivot_turn": (("pivot/turns",), ("retry/count",)),
    "pivot_position": (("pivot/turns",), ("pivot/of_turns",)),
    "pivot_oracle_agreement": (("pivot/oracle_agrees",), ("pivot/with_oracle",)),
    "pivot_oracle_near": (("pivot/oracle_near",), DIAGNOSES),
    "retry_success_right_pivot": (("retry/right_pivot_success",), ("retry/right_pivot",)),
    "retry_success_wrong_pivot": (("retry/wrong_pivot_success",), ("retry/wrong_pivot",)),
    **{f"diagnosis_{grade}": ((f"diagnosis/{grade}",), DIAGNOSES) for grade in ("accurate", "partial", "wrong")},
    "masked": (("tokens/masked",), ("tokens/response",)),
    "imitated": (("trained/sft", "trained/reflection", "trained/critique"), ("tokens/trained",)),
    "answer_stated": (("leak/answer_stated",), ("leak/guidance",)),
}


def rates(counts: Mapping[str, float]) -> dict[str, float | None]:
    """Shares and means that the counts of a step, or the totals of a run, amount to; None where nothing was counted.

    ``retry_trigger`` is retries per base rollout. ``retry_gain`` is the mean of (retry's reward - base's);
    ``pivot_position`` the mean share of an episode before its pivot, longer episodes weighing more. ``imitated``
    leaves out guided retries that are trained as groups of one (sft_mode: reward1_singleton).
    """
    bases = _bases(counts)
    found = {name: _ratio(counts, part, whole) for name, (part, whole) in RATES.items()}
    return {"retry_trigger": counts.get("retry/count", 0) / bases if bases else None, **found}


def base_success(counts: Mapping[str, float]) -> float | None:
    """The share of base rollouts that succeed, of counts as in :func:`rates`; None where there were none.

    Of one step it is ``train/success``, but also right for runs of Critique-GRPO that were stored when that metric left
    out rollouts which a refinement had replaced.
    """
    bases = _bases(counts)
    return (counts.get("stop/success", 0) - counts.get("retry/success", 0)) / bases if bases else None


def summed(rows: Iterable[Mapping[str, float]]) -> Counter[str]:
    """The counts of several steps together."""
    total: Counter[str] = Counter()
    for row in rows:
        total.update(row)
    return total


def _bases(counts: Mapping[str, float]) -> float:
    return counts.get("rollouts", 0) - counts.get("retry/count", 0)


def _ratio(counts: Mapping[str, float], part: Sequence[str], whole: Sequence[str]) -> float | None:
    total = sum(counts.get(key, 0) for key in whole)
    return sum(counts.get(key, 0) for key in part) / total if total else None


def of_groups(groups: Sequence[Group], explored: Sequence[Trajectory], dropped: int = 0) -> Metrics:
    """Means over base rollouts (what all methods have in common), and what the groups are like.

    ``explored``: all that was played in the step (``RolloutContext.explored``): the groups of a method need not hold
    every base rollout (Critique-GRPO's refinement takes the place of one). ``dropped``: tasks whose groups were
    refused.
    """
    base = [t for t in explored if t.kind == "base"]
    tasks = [g for g in groups if g.objective == "policy" and any(t.kind == "base" for t in g.trajectories)]
    metrics: Metrics = {
        "train/success": _mean([t.success for t in base]),
        "train/reward": _mean([t.reward for t in base]),
        "train/turns": _mean([len(t.turns) for t in base]),
        "groups/policy": len(tasks),
        "groups/zero_variance": sum(float(g.rewards().std() == 0) for g in tasks),
        "dropped/groups": dropped,
        "entropy": _entropy(groups),
    }
    for name in sorted({t.task.group for t in base}):
        members = [t for t in base if t.task.group == name]
        metrics[f"train/success/{name}"] = _mean([t.success for t in members])
    return metrics


def _entropy(groups: Sequence[Group]) -> float:
    """Nats per sampled token of base rollouts: the mean of -log p, an unbiased estimate of the policy's entropy."""
    base = [t for g in groups for t in g.trajectories if t.kind == "base" and g.objective != "sft"]
    logprobs = [x for t in base for turn in t.turns for x in turn.logprobs]
    return -_mean(logprobs)


def of_rows(rows: Sequence[Row]) -> Metrics:
    """Advantages and token shares of a step.

    ``advantage/negative_to_positive`` is sum |A-| / sum A+ over policy rows that train something;
    ``tokens/masked`` are sampled tokens of policy rows without gradient; ``tokens/response`` all of them.
    """
    policy = [row for row in rows if not row.sft]
    advantages = np.asarray([row.advantage for row in policy if row.mask.any()], dtype=float)
    sampled = sum(sum(len(turn.response_ids) for turn in row.trajectory.turns) for row in policy)
    negative, positive = -advantages[advantages < 0].sum(), advantages[advantages > 0].sum()
    return {
        "advantage/positive_fraction": _mean(list(advantages > 0)),
        "advantage/negative_to_positive": float(negative / positive) if positive else 0.0,
        "advantage/mean": _mean(list(advantages)),
        "advantage/inverted": _inversions(policy),
        "tokens/response": sampled,
        "tokens/masked": sampled - sum(int(row.mask.sum()) for row in policy),
    }


def of_training(rows: Sequence[Row], useful: Sequence[Row]) -> Metrics:
    """Tokens and rows of an update with the ``useful`` ones of ``rows``; trained tokens by kind."""
    metrics: Metrics = {
        "tokens/trained": sum(int(r.mask.sum()) for r in useful),
        "tokens/forwarded": sum(len(r.ids) for r in useful),
        "rows/used": len(useful),
        "rows/idle": len(rows) - len(useful),
    }
    for row in useful:
        key = f"trained/{'sft' if row.sft else row.trajectory.kind}"
        metrics[key] = metrics.get(key, 0) + int(row.mask.sum())
    return metrics


def _inversions(policy: Sequence[Row]) -> int:
    """Rows that get less than another row of their task with a lower reward (audit A-2)."""
    best: dict[tuple[str, float], float] = {}
    for row in policy:
        key = row.trajectory.task.id, row.trajectory.reward
        best[key] = max(best.get(key, -np.inf), row.advantage)
    return sum(
        any(
            task == row.trajectory.task.id and r < row.trajectory.reward and a > row.advantage + 1e-9
            for (task, r), a in best.items()
        )
        for row in policy
    )


def _mean(values: Sequence[float]) -> float:
    """Exact before its one division: the same whatever the order."""
    return math.fsum(values) / len(values) if len(values) else 0.0
