"""What answers without reasoning score: the row that every table of puzzles needs beside its methods."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from r3l.core.task import Task
from r3l.envs.puzzles.registry import puzzle
from r3l.envs.puzzles.task_sets import tasks


def baseline(task_set: str) -> dict[str, Any]:
    """``of`` the tasks of ``NAME/SPLIT``."""
    return of(tasks(task_set))


def of(found: Sequence[Task]) -> dict[str, Any]:
    """Accuracy of every constant answer on tasks of one puzzle, over ``all`` and by group.

    ``{"tasks": n, "groups": {group: n}, "best": policy, "policies": {policy: {"all": share, group: share, ...}}}``;
    ``best`` is the policy with the highest share of all (the first of equals).
    """
    kind = puzzle(found[0].payload["puzzle"])
    groups = Counter(task.group for task in found)
    right: dict[str, Counter[str]] = defaultdict(Counter)
    for task in found:
        data = task.payload["data"]
        verdicts: dict[str, bool] = {}
        for policy, answer in kind.constants(data).items():
            if answer not in verdicts:  # policies may come to the same on a small problem
                verdicts[answer] = kind.verify(data, answer)
            right[policy][task.group] += verdicts[answer]
    policies = {
        policy: {
            "all": counts.total() / len(found),
            **{group: counts[group] / n for group, n in sorted(groups.items())},
        }
        for policy, counts in right.items()
    }
    best = max(policies, key=lambda policy: policies[policy]["all"])
    return {"tasks": len(found), "groups": dict(sorted(groups.items())), "best": best, "policies": policies}
