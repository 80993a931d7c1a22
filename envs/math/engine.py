"""Mathematics as an environment: a response is graded by its answer."""

from __future__ import annotations

from functools import cache

from r3l.core.task import Task
from r3l.envs.math.grader import Verdict, compare_plainly
from r3l.envs.math.grading import Grader
from r3l.envs.math.options import MathOptions
from r3l.envs.math.released import check_in_actor
from r3l.envs.single_answer.engine import AnswerEngine, Judge, Judgement
from r3l.envs.single_answer.extraction import extract


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
