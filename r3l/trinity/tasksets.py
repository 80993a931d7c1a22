"""The tasksets that a Trinity configuration names: ids of tasks, train.jsonl and test.jsonl in one folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from r3l.config import Run, environment_of
from r3l.core.task import tasks_of_step
from r3l.files.json_files import rewrite_jsonl
from r3l.trinity.config import TASK_KEY


def write_tasksets(run: Run, folder: Path) -> None:
    """Tasks of training in the order in which the local engine takes them, and those that are tested on the way.

    Raises DataError where a task_set's data is not here; the message says how to get it.
    """
    package = environment_of(run.env)
    tested = {split: package.tasks(name) for split, name in run.env_settings.tested().items()}
    rewrite_jsonl(folder / "train.jsonl", task_rows(run))
    for split, tasks in tested.items():
        rewrite_jsonl(folder / f"{split}.jsonl", [{TASK_KEY: task.id} for task in tasks])


def task_rows(run: Run) -> Iterator[dict[str, str]]:
    """The taskset: ids of tasks in the order in which the local engine trains on them."""
    tasks = environment_of(run.env).tasks(run.env_settings.train_task_set)
    for step in range(1, run.train.steps + 1):
        for task in tasks_of_step(tasks, run.seed, step, run.train.tasks_per_step):
            yield {TASK_KEY: task.id}
