"""The task sets of a run as files that Trinity-RFT reads, a row per task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from r3l.config import Run, environment_of
from r3l.core.task import Task, tasks_of_step, with_occurrences
from r3l.files.json_files import rewrite_jsonl

TASK_KEY = "id"  # keys of a row
OCCURRENCE = "occurrence"


def write_tasksets(run: Run, folder: Path) -> None:
    """Write the run's task sets as JSONL files into ``folder``, a row ``{"id", "occurrence"}`` per task.

    train.jsonl has the tasks of all steps in training order; SPLIT.jsonl an evaluation's task set.
    """
    package = environment_of(run.env)
    tested = {split: package.tasks(name) for split, name in run.env_settings.tested().items()}
    rewrite_jsonl(folder / "train.jsonl", task_rows(run))
    for split, tasks in tested.items():
        rewrite_jsonl(folder / f"{split}.jsonl", [_row(task) for task in tasks])


def task_rows(run: Run) -> Iterator[dict[str, Any]]:
    """Rows of train.jsonl: ``{"id", "occurrence"}`` of every task drawn, in the local engine's order.

    ``occurrence``: how often the task was drawn before in its step.
    """
    tasks = environment_of(run.env).tasks(run.env_settings.train_task_set)
    for step in range(1, run.train.steps + 1):
        of_step = tasks_of_step(tasks, run.seed, step, run.train.tasks_per_step)
        yield from map(_row, with_occurrences(of_step, Counter()))


def _row(task: Task) -> dict[str, Any]:
    return {TASK_KEY: task.id, OCCURRENCE: task.occurrence}
