"""The puzzles' task sets: which problems results are measured on, committed as counts and hashes.

``NAME/SPLIT`` of ``configs/task_sets/puzzles_NAME.yaml``. Problems are made one after another, by index; one whose
content was there before is left out, each other goes to the first split that still wants one of its group. So no two
tasks of a task set have the same content, and a split is made no further than it reaches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from pydantic import Field, ValidationError
from r3l.envs.base.package import ConstantAnswer
from r3l.envs.base.task_sets import (
    Strict,
    check_hash,
    committed,
    definition_path,
    name_and_split,
    read_definition,
    sha256_of,
    split_hash,
)
from r3l.envs.puzzles.base import Difficulty, Problem, Puzzle
from r3l.envs.puzzles.registry import puzzle

from r3l.core.errors import ConfigError
from r3l.core.task import Task

ENV = "puzzles"
ALL = "all"  # in place of a group: problems of any group, as they come
_IN_VAIN = 20_000  # problems in a row that nobody wants, after which a split is given up


class Definition(Strict):
    """configs/task_sets/puzzles_NAME.yaml. ``splits``: tasks of each group (or ``all``); the first split takes
    first."""

    name: str
    puzzle: str
    difficulty: Mapping[str, Any]
    splits: Mapping[str, Mapping[str, int]] = Field(min_length=1)
    sources: Mapping[str, str]


def tasks(task_set: str) -> list[Task]:
    """The tasks of ``NAME/SPLIT``, sorted by id. Raises DataError where they are not those that were committed."""
    name, split = name_and_split(ENV, task_set, _splits)
    regenerated = regenerate(name, split)
    check_hash(ENV, name, split, sha256_of(regenerated))
    return regenerated


def committed_hash(task_set: str) -> str:
    """The sha256 committed for ``NAME/SPLIT``; makes no problem."""
    name, split = name_and_split(ENV, task_set, _splits)
    return split_hash(ENV, name, split)


def constant_answer(task_set: str) -> ConstantAnswer:
    """The best constant answer and its success by group, as committed (``r3l.envs.puzzles.constant_answers``)."""
    name, split = name_and_split(ENV, task_set, _splits)
    return ConstantAnswer(**committed(ENV, name)["splits"][split]["constant_answer"])


def sft_task(index: int, name: str) -> Task:
    """Problem ``index`` (from 0, without end) of those whose content is in no split of a task set; contents may
    repeat."""
    return _allocation(name).spare_task(index)


def regenerate(name: str, split: str) -> list[Task]:
    """The tasks that a split has now, whatever was committed."""
    return list(_allocation(name).split(split))


@lru_cache(maxsize=16)
def definition(name: str) -> Definition:
    """Read a task set's definition. Raises ConfigError where it is unknown or malformed."""
    return read_definition(Definition, ENV, name, "none")


@dataclass
class Allocation:
    """A task set in the making: what each split has so far, and what is spare."""

    wanted: Definition
    splits: dict[str, list[Task]] = field(default_factory=dict)
    spare: list[Task] = field(default_factory=list)
    _made: int = 0
    _seen: dict[str, bool] = field(default_factory=dict)  # by content: whether a split has it

    def __post_init__(self) -> None:
        self.splits = {split: [] for split in self.wanted.splits}
        self._left = {split: Counter(counts) for split, counts in self.wanted.splits.items()}

    @cached_property
    def puzzle(self) -> Puzzle:
        """The task set's puzzle."""
        return puzzle(self.wanted.puzzle)

    @cached_property
    def difficulty(self) -> Difficulty:
        """The task set's difficulty. Raises ConfigError."""
        try:
            return self.puzzle.difficulty.model_validate(dict(self.wanted.difficulty))
        except ValidationError as error:
            raise ConfigError(f"{definition_path(ENV, self.wanted.name)}: difficulty: {error}") from error

    def split(self, split: str) -> list[Task]:
        """The tasks of a split, all of them."""
        self._make_until(lambda: not self._left[split].total(), lambda: len(self.splits[split]))
        return self.splits[split]

    def spare_task(self, index: int) -> Task:
        """Spare task ``index``."""
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
    return Allocation(definition(name))


def _splits(name: str) -> Collection[str]:
    return definition(name).splits
