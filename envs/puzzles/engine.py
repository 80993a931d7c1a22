"""Puzzles as an environment: a response is graded by its boxed answer."""

from __future__ import annotations

from r3l.envs.puzzles import released
from r3l.envs.puzzles.options import PuzzleOptions
from r3l.envs.puzzles.registry import puzzle
from r3l.envs.single_answer.engine import AnswerEngine, AnswerGrade, ResponseGrader
from r3l.envs.single_answer.extraction import extract

from r3l.core.task import Task


def response_grader(options: PuzzleOptions) -> ResponseGrader:
    """How a response is graded under ``options``."""

    def grade(task: Task, response: str) -> AnswerGrade:
        kind, ours = puzzle(task.payload["puzzle"]), options.verifier == "ours"
        answer = extract(response, "strict") if ours else released.answer_in(response)
        if answer is None:
            return AnswerGrade(False, None)
        verify = kind.verify if ours else kind.verify_released
        return AnswerGrade(verify(task.payload["data"], answer), answer)

    return grade


def create(options: PuzzleOptions) -> AnswerEngine:
    """A new environment under ``options``."""
    return AnswerEngine(options, response_grader(options))
