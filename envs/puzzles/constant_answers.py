"""What constant answers score: the baseline that every table of puzzles needs beside its methods."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from r3l.envs.base.package import ConstantAnswer
from r3l.envs.puzzles.registry import puzzle
from r3l.envs.puzzles.task_sets import tasks

from r3l.core.task import Task


@dataclass(frozen=True)
class ConstantAnswers:
    """``groups``: tasks of each group. ``success``: of each constant answer, its rate in each group and in ``all``."""

    groups: Mapping[str, int]
    success: Mapping[str, Mapping[str, float]]

    @property
    def best(self) -> ConstantAnswer:
        """The one that solves most tasks; the first of equals."""
        answer = max(self.success, key=lambda name: self.success[name]["all"])
        return ConstantAnswer(answer, self.success[answer])


def constant_answers(task_set: str) -> ConstantAnswers:
    """The score of every constant answer on ``NAME/SPLIT``."""
    return scores_of(tasks(task_set))


def scores_of(puzzles: Sequence[Task]) -> ConstantAnswers:
    """The score of every constant answer on tasks of one puzzle."""
    kind = puzzle(puzzles[0].payload["puzzle"])
    groups = Counter(task.group for task in puzzles)
    solved: dict[str, Counter[str]] = defaultdict(Counter)
    for task in puzzles:
        data = task.payload["data"]
        correct: dict[str, bool] = {}
        for name, answer in kind.constant_answers(data).items():
            if answer not in correct:  # on a small problem several come to the same
                correct[answer] = kind.verify(data, answer)
            solved[name][task.group] += correct[answer]
    success = {
        name: {"all": counts.total() / len(puzzles)} | {group: counts[group] / n for group, n in sorted(groups.items())}
        for name, counts in solved.items()
    }
    return ConstantAnswers(dict(sorted(groups.items())), success)
