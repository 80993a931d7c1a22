"""What puzzles bring to scripted demonstrations: the problems that no split of a task set has taken."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from r3l.envs.puzzles.dialogue import create, response, solution
from r3l.envs.puzzles.engine import response_grader
from r3l.envs.puzzles.options import PuzzleOptions
from r3l.envs.puzzles.registry import puzzle
from r3l.envs.puzzles.task_sets import definition, sft_task
from r3l.envs.scripted.expert import ErrorModel
from r3l.envs.single_answer.demonstrations import AnswerDemonstrator

from r3l.core.errors import ConfigError
from r3l.core.seeds import generator
from r3l.core.task import Task


def demonstrator_of(task_sets: Sequence[str]) -> AnswerDemonstrator:
    """The one whose tasks are the spare problems of ``task_sets``, which take turns. Raises ConfigError."""
    if not task_sets:
        raise ConfigError(
            "an SFT recipe of environment 'puzzles' must name the task sets whose spare problems are taught, "
            "for example task_sets: [countdown_nano]"
        )
    for name in task_sets:
        definition(name)  # an unknown one is an error before anything is played

    def task(index: int) -> Task:
        number, turn = divmod(index, len(task_sets))
        return sft_task(number, task_sets[turn])

    return AnswerDemonstrator(
        dialogue=lambda max_turns: create("compact", max_turns, PuzzleOptions()),
        grade=response_grader(PuzzleOptions()),
        task=task,
        solution=solution,
        write=write,
    )


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
