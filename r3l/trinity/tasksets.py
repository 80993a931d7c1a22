"""The tasksets that a Trinity configuration names: ids of tasks, train.jsonl and test.jsonl in one folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from r3l.config import Run, environment_of
from r3l.core.files import rewrite_jsonl
from r3l.core.task import tasks_of_step
from r3l.trinity.config import TASK_KEY


def write_tasksets(run: Run, folder: Path) -> None:
    """Tasks of training in the order in which the local engine takes them, and those of the test task set.

    Raises DataError where a task_set's data is not here; the message says how to get it.
    """
    tested = environment_of(run.env).tasks(run.env_settings.test_task_set)
    rewrite_jsonl(folder / "train.jsonl", task_rows(run))
    rewrite_jsonl(folder / "test.jsonl", [{TASK_KEY: task.id} for task in tested])


def task_rows(run: Run) -> Iterator[dict[str, str]]:
    """The taskset: ids of tasks in the order in which the local engine trains on them."""
    tasks = environment_of(run.env).tasks(run.env_settings.train_task_set)
    for step in range(1, run.train.steps + 1):
        for task in tasks_of_step(tasks, run.seed, step, run.train.tasks_per_step):
            yield {TASK_KEY: task.id}
