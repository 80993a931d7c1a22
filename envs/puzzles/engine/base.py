"""The base class of puzzles: generator, verifier, critic and scripted solver of one kind of problem.

Problems come from reasoning-gym's generators; verifiers and critics are our own. A problem's ``data`` holds
all that verifier, critic and solver need, as JSON. Answers are model output: parsers with bounded work read
them, they are never evaluated, and an answer that cannot be parsed is wrong.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator
from r3l.envs.base.task_sets import DefinitionModel

from r3l.core.errors import ConfigError, DataError

Data = Mapping[str, Any]
MAX_ANSWER = 2000  # characters; our choice: the longest right answer (5 people) has about 130
CORRECT = "the answer is correct"


class Difficulty(DefinitionModel):
    """Settings of a puzzle's generator. Problem k is item k of reasoning-gym's data set with this ``seed``.

    ``style``: ``released`` is reasoning-gym's own wording, ``compact`` a few words that a nano model can
    read. Raises ValueError if a ``min_`` field exceeds its ``max_`` field.
    """

    seed: int = Field(ge=0)
    style: Literal["released", "compact"]

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        """Raise ValueError if a min_x is more than its max_x."""
        for least in type(self).model_fields:
            most = least.replace("min_", "max_")
            if getattr(self, least) > getattr(self, most):
                raise ValueError(
                    f"{least} is {getattr(self, least)}, more than {most}, {getattr(self, most)}"
                )
        return self


@dataclass(frozen=True)
class PuzzleProblem:
    """A generated problem.

    ``text``: as the model reads it. ``answer``: a right one. ``data``: what answers are graded by. ``group``:
    its group in tables, such as ``3 people``.
    """

    text: str
    answer: str
    data: dict[str, Any]
    group: str


@dataclass(frozen=True)
class WorkedSolution:
    """A worked solution, right or wrong: lines of reasoning, then the answer without a box."""

    lines: list[str]
    answer: str


class Puzzle(ABC):
    """A kind of puzzle. Stateless: each method is a function of its arguments."""

    name: ClassVar[str]
    difficulty: ClassVar[type[Difficulty]]

    @abstractmethod
    def generate(self, index: int, difficulty: Any) -> PuzzleProblem:
        """Problem ``index`` (from 0, unbounded) by the generator's settings, this puzzle's ``difficulty``."""

    @abstractmethod
    def key(self, data: Data) -> str:
        """The content of a problem as text. Problems with equal keys are duplicates, never in two splits."""

    @abstractmethod
    def verify(self, data: Data, answer: str) -> bool:
        """Whether ``answer``, a response's answer without its box, is right. Never raises.

        An answer that cannot be parsed is wrong.
        """

    @abstractmethod
    def verify_released(self, data: Data, answer: str) -> bool:
        """True if the verifier of released code accepts ``answer``, right or not. Never raises.

        For countdown it is R3L's, for other puzzles RLTF's; both have defects.
        """

    @abstractmethod
    def critique(self, data: Data, answer: str) -> str:
        """Describe what is wrong with ``answer`` without giving the right one away; CORRECT if it is right.

        Never raises.
        """

    @abstractmethod
    def constant_answers(self, data: Data) -> dict[str, str]:
        """Answers that need no reasoning, by a name that is the same for every problem, such as all knights.

        Each is written with the words of ``data``, such as the names of its people.
        """

    @abstractmethod
    def work(self, data: Data) -> WorkedSolution:
        """The worked solution of a careful solver. ``data`` may be a misread problem, without a solution."""

    @abstractmethod
    def misreadings(self, data: Data, rng: np.random.Generator) -> Iterator[Data]:
        """Misread versions of ``data`` in random order; under at least one, ``work`` gets a wrong answer."""

    def by_habit(self, data: Data) -> Data:
        """``data`` as misread by a solver that always makes one mistake, such as reading ``and`` as ``or``.

        Raises ConfigError if the puzzle defines no such mistake.
        """
        raise ConfigError(
            f"puzzle {self.name!r} has no bad habit: set error_rates.overlook to 0 (configs/sft)"
        )

    def steps(self, data: Data) -> list[str]:
        """The lines of the worked solution, without line breaks, and the answer (no box) as the last one."""
        work = self.work(data)
        return [*work.lines, work.answer]

    def attempt(self, data: Data, rng: np.random.Generator, skill: float, after: int = 0) -> WorkedSolution:
        """Solve ``data`` without an error with probability ``skill``, else after misreading it once.

        In a retry the first ``after`` lines are right; if no mistake is possible after them, the rest is
        right too. The same generator state gives the same mistake, so a generator that is seeded only by the
        problem makes it systematic. Raises DataError if ``after`` is 0 and no misreading of the problem leads
        to a wrong answer.
        """
        careful = self.work(data)
        if rng.random() >= skill:
            # Use the first misreading that makes the answer wrong and shows after the given lines.
            for misread in self.misreadings(data, rng):
                work = self.work(misread)
                line = first_difference(careful.lines, work.lines)
                if line is not None and line >= after and not self.verify(data, work.answer):
                    return work
            if not after:
                raise DataError(f"{self.name}: no misreading of {dict(data)} leads to a wrong answer")
        return careful


def first_difference(right: Sequence[str], other: Sequence[str]) -> int | None:
    """Index of the first difference; if one is a prefix of the other, its length.

    None for equal sequences.
    """
    if list(right) == list(other):
        return None
    for k, (one, two) in enumerate(zip(right, other, strict=False)):
        if one != two:
            return k
    return min(len(right), len(other))


def shuffled(items: list[Any], rng: np.random.Generator) -> list[Any]:
    """A shuffled copy of ``items``."""
    return [items[k] for k in rng.permutation(len(items))]


def item(generator: str, seed: int, index: int, **parameters: Any) -> dict[str, Any]:
    """Item ``index`` of ``reasoning_gym.create_dataset(generator, seed=seed, **parameters)``.

    It has the keys question, answer and metadata. The data set is created once per process.
    Raises ValueError for a generator that reasoning-gym does not have.
    """
    generated: dict[str, Any] = _dataset(generator, seed, tuple(sorted(parameters.items())))[index]
    return generated


@lru_cache(maxsize=64)
def _dataset(generator: str, seed: int, parameters: tuple[tuple[str, Any], ...]) -> Any:
    return reasoning_gym().create_dataset(generator, seed=seed, **dict(parameters))


@cache
def reasoning_gym() -> Any:
    """The package of the generators, imported at the first call, which takes a second and a half."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # cellpylib's, whenever Python compiles it
        import reasoning_gym
    return reasoning_gym


def range_of(difficulty: Difficulty, *names: str) -> dict[str, Any]:
    """The fields ``names`` of a difficulty as {name: value}: arguments of reasoning-gym's generator."""
    return {name: getattr(difficulty, name) for name in names}
