"""Whether an answer equals the gold one: text, then numbers, then math-verify on both, each wrapped in a box.

``grade`` computes and may take forever on a hostile answer. So ``grader_process`` runs this module (``python -m
r3l.envs.math.engine.grader DEADLINE``; a JSON line [gold, answer] in, [correct, status, by] out), which it kills and
replaces when a line takes too long. A Python loop is interrupted by an alarm at the deadline; only what does not
even come back to Python is killed from outside. The deadline is in seconds of processor time, so that a busy machine
does not make right answers wrong. What cannot be read or takes too long is wrong, and counted under its reason.
"""

from __future__ import annotations

import json
import logging
import resource
import signal
import sys
from dataclasses import dataclass
from functools import lru_cache
from types import FrameType
from typing import Any, Literal

from r3l.envs.math.engine.normalize import (
    apart,
    bases_agree,
    case_agrees,
    legible,
    number,
    plain,
    same_word,
    without_units,
)

ROUNDING = 1e-5  # of a value: 0.333333 is a third, as math-verify has it
LONGEST = 1_000  # characters of an answer; no gold of any set has more than 210
Status = Literal["graded", "none", "too_long", "unreadable", "timeout", "crash"]
By = Literal["text", "number", "symbols", ""]


@dataclass(frozen=True)
class MathGrade:
    """``status``: whether an answer was read at all. ``by``: which rule decided."""

    correct: bool
    status: Status = "graded"
    by: By = ""


_BRACKETS = {("(", ")"), ("[", "]"), ("(", "]"), ("[", ")"), ("\\{", "\\}")}


def grade(gold: str, answer: str | None) -> MathGrade:
    """Compare ``answer`` (without its box) with ``gold`` (bare, as the data set has it). May not return in time."""
    return compare_plainly(gold, answer) or _by_symbols(gold, str(answer))


def compare_plainly(gold: str, answer: str | None) -> MathGrade | None:
    """What can be said at once: no answer, one too long, the same text, two numbers. None where symbols decide."""
    if answer is None or not answer.strip():
        return MathGrade(False, "none")
    if len(answer) > LONGEST:
        return MathGrade(False, "too_long")
    if plain(gold) == plain(answer) or same_word(gold, answer):
        return MathGrade(True, by="text")
    gold, answer = without_units(gold, answer)
    numbers = number(gold), number(answer)
    return None if None in numbers else MathGrade(numbers[0] == numbers[1], by="number")


def _by_symbols(gold: str, answer: str) -> MathGrade:
    gold, answer = without_units(gold, answer)
    agree = bases_agree(gold, answer)
    if agree is None and apart(gold) != apart(answer):
        agree = False  # math-verify reads 3 4 as 34
    if agree is None and _brackets(gold) and _brackets(answer) and _brackets(gold) != _brackets(answer):
        agree = False  # math-verify takes the interval (1, 2) for the set {1, 2}
    if agree is not None:
        return MathGrade(agree, by="symbols")
    expected, given = _parsed(legible(gold)), _parsed(legible(answer))
    if not given or not expected:
        return MathGrade(False, "unreadable")
    return MathGrade(_verified(gold, expected, answer, given), by="symbols")


def _verified(gold: str, expected: tuple[Any, ...], answer: str, given: tuple[Any, ...]) -> bool:
    """What math-verify says, without its two excesses: x for X, and any two numbers below its sixth decimal."""
    from math_verify import verify

    if not verify(list(expected), list(given), timeout_seconds=None) or not case_agrees(gold, answer):
        return False
    return "%" in gold + answer or not _far_apart(expected[0], given[0])


def _far_apart(one: Any, other: Any) -> bool:
    """Whether two numbers differ by more than a rounding, or two collections of them somewhere."""
    from sympy import Eq, Expr, FiniteSet, N, Tuple

    one, other = (side.rhs if isinstance(side, Eq) else side for side in (one, other))
    if isinstance(one, Expr) and isinstance(other, Expr):
        if not (one.is_number and other.is_number and one.is_finite and other.is_finite):
            return False
        difference, *sizes = (abs(N(value, 30)) for value in (one - other, one, other))
        return bool(difference > ROUNDING * max(sizes))
    for kind in (Tuple, FiniteSet):
        if isinstance(one, kind) and isinstance(other, kind) and len(one.args) == len(other.args):
            numbers = all(part.is_real for part in (*one.args, *other.args))
            ordered = (sorted(side.args) if numbers else side.args for side in (one, other))
            return (numbers or kind is Tuple) and any(map(_far_apart, *ordered))
    return False


def _brackets(text: str) -> tuple[str, str] | None:
    """Those around all of a set, tuple or interval; None for anything else, such as a union of intervals."""
    bare = plain(text)
    if "\\cup" in bare:
        return None
    return next((pair for pair in _BRACKETS if bare.startswith(pair[0]) and bare.endswith(pair[1])), None)


@lru_cache(maxsize=20_000)
def _parsed(text: str) -> tuple[Any, ...]:
    """math-verify's reading of ``text`` in a box: bare LaTeX is lost (51 of MATH-500's golds read as nothing)."""
    from math_verify import parse

    return tuple(parse(f"\\boxed{{{text}}}", parsing_timeout=None))


MEMORY = 2 * 2**30  # bytes of address space: a tower of exponents must not take the machine's memory


class TimeIsUpError(Exception):
    """The alarm."""


def main() -> None:
    """Answer until the input closes."""
    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns at every call without a timeout of its own
    deadline = float(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGPROF, _ring)
    grade("\\frac{1}{2}", "\\frac{2}{4}")  # imports what grading needs before the first deadline
    print("ready", flush=True)
    for line in sys.stdin:
        gold, answer = json.loads(line)
        graded = _timely(gold, answer, deadline)
        print(json.dumps([graded.correct, graded.status, graded.by]), flush=True)


def _timely(gold: str, answer: str | None, deadline: float) -> MathGrade:
    signal.setitimer(signal.ITIMER_PROF, deadline)
    try:
        return grade(gold, answer)
    except TimeIsUpError:
        return MathGrade(False, "timeout")
    except Exception:  # noqa: BLE001 - sympy raises anything on hostile input; counted under its reason
        return MathGrade(False, "crash")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _ring(number: int, frame: FrameType | None) -> None:
    raise TimeIsUpError


if __name__ == "__main__":
    main()
