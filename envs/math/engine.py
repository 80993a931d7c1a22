"""Mathematics as an environment: a response is graded by its answer."""

from __future__ import annotations

from functools import cache

from r3l.envs.math.grader import compare_plainly
from r3l.envs.math.grading import Grader
from r3l.envs.math.options import Extraction, MathOptions
from r3l.envs.math.released import answer_in, check_in_actor
from r3l.envs.single_answer.engine import AnswerEngine, AnswerGrade, ResponseGrader
from r3l.envs.single_answer.extraction import extract

from r3l.core.task import Task


@cache
def _grader() -> Grader:
    """One grading process for each process of environments."""
    return Grader()


def response_grader(options: MathOptions) -> ResponseGrader:
    """How a response is graded under ``options``. Plain texts and numbers need no grading process."""

    def grade(task: Task, response: str) -> AnswerGrade:
        gold, answer = str(task.payload["answer"]), _answer(response, options.extraction)
        if options.grader == "released":
            return AnswerGrade(check_in_actor(gold, answer or ""), answer)
        if answer is None:
            return AnswerGrade(False, None)
        graded = compare_plainly(gold, answer) or _grader().grade(gold, answer)
        return AnswerGrade(graded.correct, answer)

    return grade


def _answer(response: str, rule: Extraction) -> str | None:
    return answer_in(response) if rule == "released" else extract(response, rule)


def create(options: MathOptions) -> AnswerEngine:
    """A new environment under ``options``."""
    return AnswerEngine(options, response_grader(options))
