"""The scripted solver of puzzles with its errors, and the critic, which never gives the answer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from r3l.envs.base.answers import Subject, WrongLine, extract
from r3l.envs.base.experts import ErrorModel
from r3l.envs.puzzles.engine.answer_engine import puzzle
from r3l.envs.puzzles.engine.base import first_difference

from r3l.core.seeds import generator
from r3l.core.task import Task

SYSTEM = (
    "Solve the puzzle. Reason step by step, one step a line. Then give the final answer alone, as "
    "\\boxed{answer}."
)


def solution(task: Task) -> list[str]:
    """A correct response, line by line; the boxed answer is last."""
    work = puzzle(task.payload["puzzle"]).work(task.payload["data"])
    return response(work.lines, work.answer)


def response(lines: Sequence[str], answer: str) -> list[str]:
    """The lines of a response: each of ``lines`` with a line break added, then the answer in a box."""
    return [*(f"{line}\n" for line in lines), f"\\boxed{{{answer}}}"]


def first_wrong_line(task: Task, lines: Sequence[str]) -> WrongLine:
    """The first line that differs from the worked solution's; its correction is the critique of the answer.

    If all lines are right, the last one. ``lines``: the lines of a response, at least one.
    """
    kind = puzzle(task.payload["puzzle"])
    right = solution(task)
    first = first_difference([line.strip() for line in right], [line.strip() for line in lines])
    last = min(len(lines), len(right)) - 1  # a response that ends too early is wrong at its last line
    correction = kind.critique(task.payload["data"], extract("".join(lines), "strict") or "")
    return WrongLine(
        last if first is None else min(first, last), "another step than a careful solver's", correction
    )


SUBJECT = Subject("puzzles", SYSTEM, first_wrong_line)


def write(task: Task, prefix: Sequence[str], error_model: ErrorModel, rng: np.random.Generator) -> list[str]:
    """Write a complete response that begins with the correct lines ``prefix``, perhaps with one misreading.

    ``error_model.rate`` is the probability of the misreading per line that is left, so long solutions fail
    more often; after a critique (with a prefix) it is halved. A systematic error is the same misreading at
    every attempt at the problem. A solver that ``overlooks`` and has no prefix misreads the problem in one
    fixed way (:meth:`Puzzle.by_habit`).
    """
    kind = puzzle(task.payload["puzzle"])
    data = task.payload["data"]
    if error_model.overlooks and not prefix:
        work = kind.work(kind.by_habit(data))
        return response(work.lines, work.answer)

    # One draw decides for all lines that are left, at the rate per line.
    lines = solution(task)
    done = len(prefix)
    ahead = max(0, len(lines) - 1 - done)  # the box is no line of reasoning
    rate = error_model.rate / 2 if prefix else error_model.rate
    if rng.random() >= (1 - rate) ** ahead:
        draws = generator("habit", task.id) if rng.random() < error_model.systematic else rng
        attempt = kind.attempt(data, draws, skill=0, after=done)
        lines = response(attempt.lines, attempt.answer)
    return lines
