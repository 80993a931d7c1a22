"""Compare an answer with the gold one: as texts, then as numbers, then with math-verify on both in boxes.

``grade`` may take forever on a hostile answer. So ``grader_process`` runs this module (``python -m
r3l.envs.math.engine.grader DEADLINE``; a JSON line [gold, answer] in, [correct, status, by] out), and kills
and replaces it when a line takes too long. An alarm at the deadline interrupts Python code; only code that
never returns to Python has to be killed. The deadline is in seconds of processor time, so that a busy
machine makes no right answer wrong. An answer that cannot be parsed or takes too long is wrong, and counted
by reason.
"""

from __future__ import annotations

import json
import logging
import resource
import signal
import sys
from dataclasses import dataclass
from types import FrameType
from typing import Literal

from r3l.envs.math.engine.guards import bases_agree, parsed, refused_by
from r3l.envs.math.engine.intervals import as_intervals
from r3l.envs.math.engine.normalize import normalize
from r3l.envs.math.engine.plain_comparison import canonical, same_word
from r3l.envs.math.engine.units import equal_numbers, readings

LONGEST = 1_000  # characters of an answer; no gold of any set has more than 210
Status = Literal["graded", "none", "too_long", "unreadable", "timeout", "crash"]
By = Literal["text", "number", "symbols", ""]


@dataclass(frozen=True)
class MathGrade:
    """The result of comparing an answer with the gold one.

    ``correct``: False unless the status is "graded". ``status``: "graded", or why no comparison was possible:
    "none" (no answer), "too_long", "unreadable", "timeout" or "crash". ``by``: the rule that
    decided ("text", "number" or "symbols"), else "".
    """

    correct: bool
    status: Status = "graded"
    by: By = ""


def grade(gold: str, answer: str | None) -> MathGrade:
    """Compare ``answer`` with ``gold``, both without a box; ``answer`` None: the response had none.

    False with a status if the answer is None or blank (``none``), too long, or unreadable. No limits:
    math-verify may run for minutes, and sympy raises anything on odd input. Call it in a process
    (``grader_process``).
    """
    from math_verify import verify

    plain = compare_plainly(gold, answer)
    if plain is not None:
        return plain
    text = str(answer)
    agree = bases_agree(gold, text)
    if agree is not None:
        return MathGrade(agree, by="symbols")

    # What math-verify accepts, as written or normalized, is right unless a guard refuses it.
    readable = False
    pairs = [*readings(gold, text), (gold, text)]
    pairs += as_intervals(normalize(gold), normalize(text))
    for one, other in dict.fromkeys(pairs):
        expected = parsed(one)
        given = parsed(other)
        if expected and given:
            readable = True
            accepted = verify(list(expected), list(given), timeout_seconds=None)
            if accepted and refused_by(one, other) is None:
                return MathGrade(True, by="symbols")
    return MathGrade(False, by="symbols") if readable else MathGrade(False, "unreadable")


def compare_plainly(gold: str, answer: str | None) -> MathGrade | None:
    """Grade what needs no math-verify: no answer, one that is too long, equal texts, two numbers.

    None in all other cases, and for a decimal that may be a rounded fraction (``equal_numbers``).
    """
    if answer is None or not answer.strip():
        return MathGrade(False, "none")
    if len(answer) > LONGEST:
        return MathGrade(False, "too_long")
    if canonical(gold) == canonical(answer) or same_word(gold, answer):
        return MathGrade(True, by="text")
    equal = equal_numbers(gold, answer)
    return None if equal is None else MathGrade(equal, by="number")


MEMORY = 2 * 2**30  # bytes of address space: a tower of exponents must not take the machine's memory


class TimeIsUpError(BaseException):
    """The time limit of a comparison. Not an Exception: math-verify catches those and would continue."""


def main() -> None:
    """Print ``ready``, then grade JSON lines [gold, answer] from standard input until it closes.

    Each line gets the answer [correct, status, by], the fields of MathGrade. Status ``timeout`` or ``crash``
    (any error, memory too) counts as wrong. First argument: seconds of processor time for one comparison.
    The process gets 2 GiB.
    """

    def ring(number: int, frame: FrameType | None) -> None:
        raise TimeIsUpError

    # math-verify warns at every call without its own timeout.
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    deadline = float(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGPROF, ring)
    grade("x + 1", "1 + x")  # imports math-verify, which takes longer than a deadline
    print("ready", flush=True)
    for line in sys.stdin:
        gold, answer = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, deadline)
        try:
            graded = grade(gold, answer)
        except TimeIsUpError:
            graded = MathGrade(False, "timeout")
        except Exception:  # noqa: BLE001 - sympy raises anything on hostile input; counted under its reason
            graded = MathGrade(False, "crash")
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps([graded.correct, graded.status, graded.by]), flush=True)


if __name__ == "__main__":
    main()
