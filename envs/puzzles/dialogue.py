"""How puzzles talk: the problem, and a critic that says what is wrong and never what is right."""

from __future__ import annotations

from collections.abc import Sequence

from r3l.envs.puzzles.base import first_difference
from r3l.envs.puzzles.options import PuzzleOptions
from r3l.envs.puzzles.registry import puzzle
from r3l.envs.single_answer.dialogue import AnswerDialogue, Subject, WrongLine
from r3l.envs.single_answer.extraction import extract

from r3l.core.environment import Style
from r3l.core.task import Task

SYSTEM = "Solve the puzzle. Reason step by step, one step a line. Then give the final answer alone, as \\boxed{answer}."


def solution(task: Task) -> list[str]:
    """The right lines of a response, the boxed answer last."""
    work = puzzle(task.payload["puzzle"]).work(task.payload["data"])
    return response(work.lines, work.answer)


def response(lines: Sequence[str], answer: str) -> list[str]:
    """Lines and answer as a model writes them."""
    return [*(f"{line}\n" for line in lines), f"\\boxed{{{answer}}}"]


def first_wrong_line(task: Task, lines: Sequence[str]) -> WrongLine:
    """The first line that a careful solver would not have written, and what is wrong with the answer."""
    right, kind = solution(task), puzzle(task.payload["puzzle"])
    first = first_difference([line.strip() for line in right], [line.strip() for line in lines])
    last = min(len(lines), len(right)) - 1  # a response that breaks off is wrong at its end
    correction = kind.critique(task.payload["data"], extract("".join(lines), "strict") or "")
    return WrongLine(last if first is None else min(first, last), "another step than a careful solver's", correction)


SUBJECT = Subject("puzzles", SYSTEM, first_wrong_line)


def create(style: Style, max_turns: int, options: PuzzleOptions) -> AnswerDialogue:
    """The text side under ``options``."""
    return AnswerDialogue(SUBJECT, style, max_turns, options)
