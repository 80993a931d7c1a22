"""Puzzles as an environment: a response is graded by its boxed answer."""

from __future__ import annotations

from collections.abc import Mapping

from r3l.envs.base.answers import AnswerGrade, ResponseGrader, extract
from r3l.envs.puzzles import PuzzleOptions
from r3l.envs.puzzles.engine import released
from r3l.envs.puzzles.engine.base import Puzzle
from r3l.envs.puzzles.engine.binary_matrix import BinaryMatrix
from r3l.envs.puzzles.engine.countdown import Countdown
from r3l.envs.puzzles.engine.knights_knaves import KnightsKnaves
from r3l.envs.puzzles.engine.shortest_path import ShortestPath

from r3l.core.errors import check_known
from r3l.core.task import Task


def response_grader(options: PuzzleOptions) -> ResponseGrader:
    """A function (task, response) that extracts the answer of a response and verifies it.

    ``options.verifier``: by our rules for both (a box or answer tags), or by the released code's. A
    response without an answer is wrong, with answer None.
    """

    def grade(task: Task, response: str) -> AnswerGrade:
        kind = puzzle(task.payload["puzzle"])
        ours = options.verifier == "ours"
        answer = extract(response, "strict") if ours else released.answer_in(response)
        if answer is None:
            return AnswerGrade(False, None)
        verify = kind.verify if ours else kind.verify_released
        return AnswerGrade(verify(task.payload["data"], answer), answer)

    return grade


PUZZLES: Mapping[str, Puzzle] = {
    p.name: p for p in (KnightsKnaves(), BinaryMatrix(), ShortestPath(), Countdown())
}


def puzzle(name: str) -> Puzzle:
    """The puzzle called ``name``. Raises ConfigError for an unknown name."""
    check_known("puzzle", name, PUZZLES)
    return PUZZLES[name]
