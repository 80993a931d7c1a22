"""What a response to a puzzle looks like, the critic that never says what is right, and the solver that errs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from r3l.envs.base.answers import Subject, WrongLine, extract
from r3l.envs.base.experts import ErrorModel
from r3l.envs.puzzles.engine.answer_engine import puzzle
from r3l.envs.puzzles.engine.base import first_difference

from r3l.core.seeds import generator
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


def write(task: Task, prefix: Sequence[str], error_model: ErrorModel, rng: np.random.Generator) -> list[str]:
    """A whole response that begins with ``prefix``, the first right lines: careful, or with a misreading on the way.

    Who ``overlooks`` something reads the whole problem by the puzzle's bad habit, until a critique gives the prefix.
    The error rate is that of a line, so that long solutions go wrong more often than short ones; after a critique it
    is half of it. A systematic error is the same misreading whenever the problem comes up.
    """
    kind, data = puzzle(task.payload["puzzle"]), task.payload["data"]
    if error_model.overlooks and not prefix:
        work = kind.work(kind.by_habit(data))
        return response(work.lines, work.answer)
    lines, done = solution(task), len(prefix)
    ahead = max(0, len(lines) - 1 - done)  # the box at the end is no line of reasoning
    rate = error_model.rate / 2 if prefix else error_model.rate
    if rng.random() >= (1 - rate) ** ahead:
        draws = generator("habit", task.id) if rng.random() < error_model.systematic else rng
        attempt = kind.attempt(data, draws, skill=0, after=done)
        lines = response(attempt.lines, attempt.answer)
    return lines
