"""Mathematics as an environment: a response is graded by its answer."""

from __future__ import annotations

from functools import cache

from envs.answers import AnswerEngine, Judge, Judgement
from envs.extraction import extract
from envs.math.grader import Verdict, compare_plainly
from envs.math.grading import Grader
from envs.math.options import MathOptions
from envs.math.released import check_in_actor
from r3l.core.task import Task


@cache
def _grader() -> Grader:
    """One grading process for each process of environments."""
    return Grader()


def judge(options: MathOptions) -> Judge:
    """How a response is judged under ``options``. Plain texts and numbers need no grading process."""

    def judged(task: Task, response: str) -> Judgement:
        gold, answer = str(task.payload["answer"]), extract(response, options.extraction)
        if options.grader == "released":
            return Judgement(check_in_actor(gold, answer or ""), answer)
        if answer is None:
            return Judgement(False, None)
        verdict: Verdict | None = compare_plainly(gold, answer)
        return Judgement((verdict or _grader().grade(gold, answer)).correct, answer)

    return judged


def create(options: MathOptions) -> AnswerEngine:
    """A new environment under ``options``."""
    return AnswerEngine(options, judge(options))
