"""Benchmark: questions with known answers, how they are asked and how replies are graded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from r3l.core.text import Message


@dataclass(frozen=True)
class BenchmarkItem:
    """``id`` is unique over all sets; ``sha256`` is over question and answer; ``overlaps`` with known training data."""

    id: str
    set: str
    text: str
    gold: str
    sha256: str
    overlaps: bool = False


@dataclass(frozen=True)
class Reply:
    """``stop``: ``end``, ``length`` (max_tokens reached), ``context`` (no room), or a server's own word."""

    text: str
    stop: str
    tokens: int | None


@dataclass(frozen=True)
class Grade:
    """By one rule: the answer that it read, whether it is right, and how grading went."""

    correct: bool
    status: str
    answer: str | None = None


@dataclass(frozen=True)
class Grading:
    """Grades by rule, and what to say next; ``feedback`` is None when the question is done."""

    grades: Mapping[str, Grade]
    feedback: Message | None = None


class Benchmark(AbstractContextManager["Benchmark"], Protocol):
    """What an environment brings; closed at the end of its context. ``settings``: everything that changes a score.

    ``temperature`` and ``max_tokens`` (of a reply) are the protocol's, used unless others are asked for.
    """

    settings: Mapping[str, Any]
    temperature: float
    max_tokens: int

    def items(self, name: str) -> list[BenchmarkItem]:
        """A set. Raises ConfigError for an unknown one, DataError where it cannot be read."""
        ...

    def opening(self, item: BenchmarkItem) -> list[Message]:
        """The messages before the first reply."""
        ...

    def grade(self, item: BenchmarkItem, replies: Sequence[Reply]) -> Grading:
        """Grade the last of ``replies``. Called from several threads."""
        ...
