"""What puzzles bring to scripted demonstrations: the problems that no split of a panel has taken."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from envs.answer_lessons import AnswerCurriculum
from envs.demonstrator import Temperament
from envs.puzzles.dialogue import create, response, solution
from envs.puzzles.engine import judge
from envs.puzzles.options import PuzzleOptions
from envs.puzzles.panels import warmstart_task
from envs.puzzles.registry import puzzle
from r3l.core.seeds import generator
from r3l.core.task import Task

TAUGHT = ("knights_knaves_nano", "shortest_path_nano")  # panels whose spare problems take turns


def _task(index: int) -> Task:
    return warmstart_task(index // len(TAUGHT), TAUGHT[index % len(TAUGHT)])


def write(task: Task, kept: Sequence[str], who: Temperament, rng: np.random.Generator) -> list[str]:
    """A whole response that begins with ``kept``: careful, or with probability ``slip`` a misreading.

    A slip of habit (share ``habit``) is the same one whenever the problem comes up.
    """
    if rng.random() < who.slip:
        draws = generator("habit", task.id) if rng.random() < who.habit else rng
        tried = puzzle(task.payload["puzzle"]).attempt(task.payload["data"], draws, skill=0)
        lines = response(tried.lines, tried.answer)
        if lines[: len(kept)] == list(kept):
            return lines
    return solution(task)


CURRICULUM = AnswerCurriculum(
    dialogue=lambda max_turns: create("compact", max_turns, PuzzleOptions()),
    judge=judge(PuzzleOptions()),
    task=_task,
    solution=solution,
    write=write,
)
