"""What puzzles bring to scripted demonstrations: the problems that no split of a task set has taken."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from r3l.core.seeds import generator
from r3l.core.task import Task
from r3l.envs.puzzles.dialogue import create, response, solution
from r3l.envs.puzzles.engine import response_grader
from r3l.envs.puzzles.options import PuzzleOptions
from r3l.envs.puzzles.registry import puzzle
from r3l.envs.puzzles.task_sets import sft_task
from r3l.envs.scripted.expert import ErrorModel
from r3l.envs.single_answer.demonstrations import AnswerDemonstrator

TAUGHT = ("knights_knaves_nano", "shortest_path_nano")  # task sets whose spare problems take turns


def _task(index: int) -> Task:
    return sft_task(index // len(TAUGHT), TAUGHT[index % len(TAUGHT)])


def write(task: Task, prefix: Sequence[str], error_model: ErrorModel, rng: np.random.Generator) -> list[str]:
    """A whole response that begins with ``prefix``: careful, or with the error rate a misreading.

    A systematic error is the same misreading whenever the problem comes up.
    """
    if rng.random() < error_model.rate:
        draws = generator("habit", task.id) if rng.random() < error_model.systematic else rng
        attempt = puzzle(task.payload["puzzle"]).attempt(task.payload["data"], draws, skill=0)
        lines = response(attempt.lines, attempt.answer)
        if lines[: len(prefix)] == list(prefix):
            return lines
    return solution(task)


DEMONSTRATOR = AnswerDemonstrator(
    dialogue=lambda max_turns: create("compact", max_turns, PuzzleOptions()),
    grade=response_grader(PuzzleOptions()),
    task=_task,
    solution=solution,
    write=write,
)
