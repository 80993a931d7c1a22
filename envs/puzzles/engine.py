"""Puzzles as an environment: a response is judged by its boxed answer."""

from __future__ import annotations

from r3l.core.task import Task
from r3l.envs.puzzles.options import PuzzleOptions
from r3l.envs.puzzles.registry import puzzle
from r3l.envs.single_answer.engine import AnswerEngine, Judge, Judgement
from r3l.envs.single_answer.extraction import extract


def judge(options: PuzzleOptions) -> Judge:
    """How a response is judged under ``options``."""

    def judged(task: Task, response: str) -> Judgement:
        kind, answer = puzzle(task.payload["puzzle"]), extract(response, "strict")
        if answer is None:
            return Judgement(False, None)
        verify = kind.verify if options.verifier == "ours" else kind.verify_released
        return Judgement(verify(task.payload["data"], answer), answer)

    return judged


def create(options: PuzzleOptions) -> AnswerEngine:
    """A new environment under ``options``."""
    return AnswerEngine(options, judge(options))
