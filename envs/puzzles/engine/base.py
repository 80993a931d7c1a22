"""Puzzle: what a kind of problem with one checkable answer brings, and how its scripted solver errs.

Problems come from reasoning-gym's generators; verifiers and critics are our own. A problem's ``data`` is all that
verifier, critic and solver need, JSON-serialisable. Answers are texts that a model wrote: they are read by literal
parsers with bounded work, never evaluated, and a text that cannot be read is never right.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator
from r3l.envs.base.task_sets import Strict

from r3l.core.errors import ConfigError, DataError

Data = Mapping[str, Any]
MAX_ANSWER = 2000  # characters; ours: the longest right answer (5 people) has about 130
CORRECT = "the answer is correct"


class Difficulty(Strict):
    """What a set of problems is drawn from. ``seed`` names the set: problem k is reasoning-gym's (seed, k).

    ``style``: ``released`` has reasoning-gym's own wording, ``compact`` a few words that a nano model can read.
    """

    seed: int = Field(ge=0)
    style: Literal["released", "compact"]

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        """Every min_x is at most its max_x."""
        for least in type(self).model_fields:
            most = least.replace("min_", "max_")
            if getattr(self, least) > getattr(self, most):
                raise ValueError(f"{least} is {getattr(self, least)}, more than {most}, {getattr(self, most)}")
        return self


@dataclass(frozen=True)
class Problem:
    """One problem: its text, a right answer, the ``data`` to grade answers by, and the stratum it is reported in."""

    text: str
    answer: str
    data: dict[str, Any]
    group: str


@dataclass(frozen=True)
class Work:
    """A worked solution: lines of reasoning, then the answer."""

    lines: list[str]
    answer: str


@dataclass(frozen=True)
class Attempt:
    """A scripted solver's response. ``first_wrong``: index into ``lines`` of the first wrong one; None: all right."""

    lines: list[str]
    answer: str
    first_wrong: int | None


class Puzzle(ABC):
    """A kind of puzzle. Stateless; everything is deterministic in its arguments."""

    name: ClassVar[str]
    difficulty: ClassVar[type[Difficulty]]

    @abstractmethod
    def generate(self, index: int, difficulty: Any) -> Problem:
        """Problem ``index`` (from 0, without end) of the set that ``difficulty`` (this puzzle's own type) names."""

    @abstractmethod
    def key(self, data: Data) -> str:
        """What makes a problem the same one: problems with equal keys may not stand in two splits."""

    @abstractmethod
    def verify(self, data: Data, answer: str) -> bool:
        """Whether ``answer`` is right. Never raises on any text; one that cannot be read is not right."""

    @abstractmethod
    def verify_released(self, data: Data, answer: str) -> bool:
        """Whether the released verifier accepts it, defects included: RLTF's, of countdown R3L's. Never raises."""

    @abstractmethod
    def critique(self, data: Data, answer: str) -> str:
        """What is wrong with ``answer``, from the problem alone: never the right answer. Never raises on any text."""

    @abstractmethod
    def constant_answers(self, data: Data) -> dict[str, str]:
        """Answers, by name, that take no reasoning: the same for every problem but for its words."""

    @abstractmethod
    def work(self, data: Data) -> Work:
        """A worked solution of ``data``, found as a careful reader would. It also accepts what it misread."""

    @abstractmethod
    def misreadings(self, data: Data, rng: np.random.Generator) -> Iterator[Data]:
        """``data`` as a careless reader takes it, in random order; at least one makes the answer of ``work`` wrong."""

    def by_habit(self, data: Data) -> Data:
        """``data`` as one with this puzzle's bad habit reads it throughout. Raises ConfigError where it has none."""
        raise ConfigError(f"puzzle {self.name!r} has no bad habit: set error_rates.overlook to 0 (configs/sft)")

    def steps(self, data: Data) -> list[str]:
        """The worked solution as lines, the answer last."""
        work = self.work(data)
        return [*work.lines, work.answer]

    def attempt(self, data: Data, rng: np.random.Generator, skill: float, after: int = 0) -> Attempt:
        """A solver that with probability 1 - ``skill`` misreads something once and works on with it.

        An attempt is right iff ``first_wrong`` is None. The first ``after`` lines are right ones, as in a retry; where
        no mistake is left to make after them, so is the rest. The same generator state gives the same mistake: an
        address without a variant (r3l.core.seeds) makes it a systematic one.
        """
        careful = self.work(data)
        if rng.random() >= skill:
            for misread in self.misreadings(data, rng):
                work = self.work(misread)
                line = first_difference(careful.lines, work.lines)
                if line is not None and line >= after and not self.verify(data, work.answer):
                    return Attempt(work.lines, work.answer, line)
            if not after:
                raise DataError(f"{self.name}: no misreading of {dict(data)} leads to a wrong answer")
        return Attempt(careful.lines, careful.answer, None)


def first_difference(right: Sequence[str], other: Sequence[str]) -> int | None:
    """Where ``other`` leaves ``right``; where one ends before the other does, that end. None where they are equal."""
    if list(right) == list(other):
        return None
    pairs = zip(right, other, strict=False)
    return next((k for k, (one, two) in enumerate(pairs) if one != two), min(len(right), len(other)))


def shuffled(items: list[Any], rng: np.random.Generator) -> list[Any]:
    return [items[k] for k in rng.permutation(len(items))]


def item(generator: str, seed: int, index: int, **parameters: Any) -> dict[str, Any]:
    """Item ``index`` of ``reasoning_gym.create_dataset(generator, seed=seed, **parameters)``."""
    generated: dict[str, Any] = _dataset(generator, seed, tuple(sorted(parameters.items())))[index]
    return generated


@lru_cache(maxsize=64)
def _dataset(generator: str, seed: int, parameters: tuple[tuple[str, Any], ...]) -> Any:
    import reasoning_gym  # its hundred generators take a second and a half to import

    return reasoning_gym.create_dataset(generator, seed=seed, **dict(parameters))


def range_of(difficulty: Difficulty, *names: str) -> dict[str, Any]:
    """The named fields of a difficulty, as reasoning-gym takes them."""
    return {name: getattr(difficulty, name) for name in names}
