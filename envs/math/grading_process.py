"""The process that grades: one JSON line in, one out. It is killed and replaced when a line takes too long.

``python -m r3l.envs.math.grading_process DEADLINE``: [gold, answer] -> [correct, status, by]. A Python loop is
interrupted by an alarm at the deadline; only what does not even come back to Python is killed from outside. The
deadline is in seconds of processor time, so that a busy machine does not make right answers wrong.
"""

from __future__ import annotations

import json
import logging
import resource
import signal
import sys
from types import FrameType

from r3l.envs.math.grader import MathGrade, grade

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
