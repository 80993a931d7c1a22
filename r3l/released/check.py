"""What is compared: a check has cases, our answer to each and the released one, and knows why some differ.

Cases and answers are plain JSON values (None, bool, int, float, str, list, dict): they cross to the process that runs
the released code and back.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from r3l.original.clones import Release

T = TypeVar("T")
Value = Any  # JSON: of a case, of an answer
Case = dict[str, Value]
Namespace = dict[str, Any]  # the released definitions, by name
Explain = Callable[[Case, Value, Value], str]  # case, ours, theirs: the id of the reason, or ""


@dataclass(frozen=True)
class Code:
    """Definitions of one released file: functions, classes, constants, or ``Class.method`` as a plain function.

    They come without decorators, without annotations that are evaluated, without base classes that are not taken too,
    and with those imports of their file that need only Python's library, numpy, torch, regex and math-verify.
    """

    path: str
    names: tuple[str, ...]


def pick(draw: np.random.Generator, values: Sequence[T]) -> T:
    """One of ``values``, for cases."""
    return values[int(draw.integers(len(values)))]


def unexplained(case: Case, ours: Value, theirs: Value) -> str:
    """No difference is expected."""
    return ""


@dataclass(frozen=True)
class Check:
    """One function of ours against the released one.

    ``theirs`` runs in the process of the foreign code; it is a function at the top of the check's module, as all here
    are. What either raises is its answer: ``{"raised": "ValueError"}``. ``explain``: the id in docs/audit.md of a
    difference, "" where there is no reason for it. ``tolerance``: of numbers, relative or absolute.
    """

    subject: str
    name: str
    release: Release
    code: tuple[Code, ...]
    cases: Callable[[], Iterable[Case]]
    theirs: Callable[[Namespace, Case], Value]
    ours: Callable[[Case], Value]
    explain: Explain = unexplained
    tolerance: float = 0.0


@dataclass(frozen=True)
class Reading:
    """A check that executes nothing: ``read`` makes (case, ours, released) out of the files below ``folder``."""

    subject: str
    name: str
    release: Release
    folder: str
    read: Callable[[Path], Iterable[tuple[Case, Value, Value]]]
    explain: Explain = unexplained


@dataclass(frozen=True)
class Mismatch:
    """A case with two answers; ``audit``: the id that explains it, or ""."""

    case: Case
    ours: Value
    theirs: Value
    audit: str = ""


@dataclass
class Outcome:
    """What one check found. ``files``: what it reads of the clone; ``missing``: those not there, so it did not run."""

    subject: str
    name: str
    release: str
    files: Sequence[str]
    cases: int = 0
    mismatches: list[Mismatch] = field(default_factory=list)
    missing: Sequence[str] = ()


def answer(function: Callable[..., Value], *arguments: Value) -> Value:
    """What a function returns, as JSON has it, or the name of what it raises."""
    try:
        value = function(*arguments)
    except Exception as error:  # noqa: BLE001  # whatever either side raises is its answer
        return {"raised": type(error).__name__}
    return json.loads(json.dumps(value))


def agree(ours: Value, theirs: Value, tolerance: float) -> bool:
    """Equal, numbers within the tolerance; NaN equals NaN, and True is not 1."""
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(agree(a, b, tolerance) for a, b in zip(ours, theirs, strict=True))
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(agree(ours[key], theirs[key], tolerance) for key in ours)
    if _number(ours) and _number(theirs):
        close = math.isclose(ours, theirs, rel_tol=tolerance, abs_tol=tolerance)
        return close or (math.isnan(ours) and math.isnan(theirs))
    return type(ours) is type(theirs) and bool(ours == theirs)


def _number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
