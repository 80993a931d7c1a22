"""Validates a task set of generated problems and writes the file to commit: the engine accepts every solution."""

from __future__ import annotations

from pathlib import Path

from r3l.envs.base.task_sets import commit, summary
from r3l.envs.math import datasets, freeze
from r3l.envs.math.arithmetic import solution
from r3l.envs.math.definitions import ENV, definition
from r3l.envs.math.engine import create
from r3l.envs.math.options import MathOptions
from r3l.envs.math.task_sets import generated
from r3l.envs.math.templated import TEMPLATED

from r3l.core.errors import DataError
from r3l.core.task import Task
from r3l.processes.progress import tracked


def build(name: str) -> Path:
    """Validate every problem of a task set and write the file that is committed; its path.

    Of published training data (dapo, deepmath) and of sets made for tier nano: read, clean and freeze it.
    """
    if name in datasets.CLEANING or name in TEMPLATED:
        return freeze.freeze(name, None)
    splits = {split: generated(name, split) for split in definition(name).splits}
    for split, tasks in splits.items():
        for task in tracked(tasks, f"validating {name}/{split}"):
            validate(task)
    return commit(ENV, name, {"task_set": name, "splits": {split: summary(tasks) for split, tasks in splits.items()}})


def validate(task: Task) -> None:
    """Raise DataError unless the engine accepts the solution of ``task``."""
    engine = create(MathOptions())
    engine.reset(task)
    for line in solution(task):
        now = engine.step(line)
    if not now.success:
        raise DataError(f"task {task.id}: its solution {solution(task)} is not accepted")
