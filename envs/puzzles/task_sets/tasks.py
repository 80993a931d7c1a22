"""The puzzles' task sets: which problems results are measured on.

``NAME/SPLIT`` of ``configs/task_sets/puzzles_NAME.yaml``. Problems are made one after another, by index; one whose
content was there before is left out, each other goes to the first split that still wants one of its group. So no two
tasks of a task set have the same content, and a split is made no further than it reaches.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from pydantic import Field, ValidationError
from r3l.envs.base import task_sets
from r3l.envs.base.package import ConstantAnswer
from r3l.envs.base.task_sets import DefinedTaskSets, committed, definition_path
from r3l.envs.puzzles.engine.answer_engine import puzzle
from r3l.envs.puzzles.engine.base import CORRECT, Difficulty, Problem, Puzzle

from r3l.core.errors import ConfigError, DataError
from r3l.core.seeds import generator
from r3l.core.task import Task

ENV = "puzzles"
ALL = "all"  # in place of a group: problems of any group, as they come
_IN_VAIN = 20_000  # problems in a row that nobody wants, after which a split is given up
_LISTED = 1000  # ids of larger splits are not written out: they are numbered without choice


class PuzzleDefinition(task_sets.TaskSetDefinition):
    """``splits``: tasks of each group (or ``all``); the first split takes first."""

    puzzle: str
    difficulty: Mapping[str, Any]
    splits: Mapping[str, Mapping[str, int]] = Field(min_length=1)


class PuzzleTaskSets(DefinedTaskSets[PuzzleDefinition]):
    """A task is valid where answer and worked solution verify, a careless attempt does not, and the critic is silent
    about the answer.
    """

    env = ENV
    definition_type = PuzzleDefinition

    def regenerate(self, name: str, split: str) -> list[Task]:
        return list(_allocation(name).split(split))

    def spare_task(self, name: str, index: int) -> Task:
        """Contents may repeat."""
        return _allocation(name).spare_task(index)

    def validate(self, task: Task) -> None:
        kind, data, answer = puzzle(task.payload["puzzle"]), task.payload["data"], task.payload["answer"]
        wrong = kind.attempt(data, generator("proof", task.id), skill=0)
        critique = kind.critique(data, wrong.answer)
        facts = {
            "its answer does not verify": not kind.verify(data, answer) or kind.critique(data, answer) != CORRECT,
            "its worked solution does not verify": not kind.verify(data, kind.work(data).answer),
            "a careless attempt verifies": kind.verify(data, wrong.answer) or critique == CORRECT,
            "the critic tells the answer": answer in critique,
        }
        if failed := [fact for fact, holds in facts.items() if holds]:
            raise DataError(f"task {task.id}: {'; '.join(failed)}")

    def summary(self, tasks: Sequence[Task]) -> dict[str, Any]:
        content = super().summary(tasks) | {"constant_answer": asdict(best_constant_answer(tasks))}
        return content | ({"ids": [task.id for task in tasks]} if len(tasks) <= _LISTED else {})

    def constant_answer(self, task_set: str) -> ConstantAnswer:
        """The best constant answer and its success by group, as committed."""
        name, split = self.parts(task_set)
        return ConstantAnswer(**committed(self.env, name)["splits"][split]["constant_answer"])


TASK_SETS = PuzzleTaskSets()


def constant_answers(tasks: Sequence[Task]) -> dict[str, dict[str, float]]:
    """What every constant answer scores on tasks of one puzzle, by group and in ``all``: the baseline of a table."""
    kind = puzzle(tasks[0].payload["puzzle"])
    groups = Counter(task.group for task in tasks)
    solved: dict[str, Counter[str]] = defaultdict(Counter)
    for task in tasks:
        data = task.payload["data"]
        correct: dict[str, bool] = {}
        for name, answer in kind.constant_answers(data).items():
            if answer not in correct:  # on a small problem several come to the same
                correct[answer] = kind.verify(data, answer)
            solved[name][task.group] += correct[answer]
    return {
        name: {"all": counts.total() / len(tasks)} | {group: counts[group] / n for group, n in sorted(groups.items())}
        for name, counts in solved.items()
    }


def best_constant_answer(tasks: Sequence[Task]) -> ConstantAnswer:
    """The one that solves most tasks; the first of equals."""
    success = constant_answers(tasks)
    answer = max(success, key=lambda name: success[name]["all"])
    return ConstantAnswer(answer, success[answer])


@dataclass
class Allocation:
    """A task set in the making: what each split has so far, and what is spare."""

    wanted: PuzzleDefinition
    splits: dict[str, list[Task]] = field(default_factory=dict)
    spare: list[Task] = field(default_factory=list)
    _made: int = 0
    _seen: dict[str, bool] = field(default_factory=dict)  # by content: whether a split has it

    def __post_init__(self) -> None:
        self.splits = {split: [] for split in self.wanted.splits}
        self._left = {split: Counter(counts) for split, counts in self.wanted.splits.items()}

    @cached_property
    def puzzle(self) -> Puzzle:
        return puzzle(self.wanted.puzzle)

    @cached_property
    def difficulty(self) -> Difficulty:
        try:
            return self.puzzle.difficulty.model_validate(dict(self.wanted.difficulty))
        except ValidationError as error:
            raise ConfigError(f"{definition_path(ENV, self.wanted.name)}: difficulty: {error}") from error

    def split(self, split: str) -> list[Task]:
        self._make_until(lambda: not self._left[split].total(), lambda: len(self.splits[split]))
        return self.splits[split]

    def spare_task(self, index: int) -> Task:
        self._make_until(lambda: index < len(self.spare), lambda: len(self.spare))
        return self.spare[index]

    def _make_until(self, done: Callable[[], bool], size: Callable[[], int]) -> None:
        """Make problems until ``done``. Raises ConfigError where ``size`` stops growing."""
        before, since = size(), self._made
        while not done():
            self._make()
            if size() > before:
                before, since = size(), self._made
            elif self._made - since > _IN_VAIN:
                raise ConfigError(
                    f"{definition_path(ENV, self.wanted.name)}: of {_IN_VAIN} problems in a row none was wanted; "
                    f"still missing: { {split: dict(+left) for split, left in self._left.items() if left.total()} }"
                )

    def _make(self) -> None:
        problem = self.puzzle.generate(self._made, self.difficulty)
        key = self.puzzle.key(problem.data)
        if key not in self._seen:
            split = self._place(problem.group)
            self._seen[key] = split is not None
            if split is not None:
                self.splits[split].append(self._task(problem, split))
        if not self._seen[key]:
            self.spare.append(self._task(problem, "sft"))
        self._made += 1

    def _place(self, group: str) -> str | None:
        """The first split that wants the group, counted as served."""
        for split, left in self._left.items():
            for wanted in (group, ALL):
                if left[wanted]:
                    left[wanted] -= 1
                    return split
        return None

    def _task(self, problem: Problem, split: str) -> Task:
        payload = {"puzzle": self.puzzle.name, "data": problem.data, "answer": problem.answer, "problem": problem.text}
        return Task(f"{self.wanted.name}/{self._made:06d}", ENV, split, problem.group, payload)


@lru_cache(maxsize=16)
def _allocation(name: str) -> Allocation:
    return Allocation(TASK_SETS.definition(name))
