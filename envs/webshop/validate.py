"""Validates a task set and writes the file to commit: a careful customer succeeds in every task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from r3l.envs.base.task_sets import commit, summary
from r3l.envs.scripted.demonstrations import CAREFUL
from r3l.envs.webshop.definitions import ENV, definition
from r3l.envs.webshop.demonstrations import DEMONSTRATOR
from r3l.envs.webshop.engine import WebshopEngine
from r3l.envs.webshop.task_sets import catalogue, regenerate

from r3l.core.errors import DataError
from r3l.core.task import Task
from r3l.processes.progress import tracked
from r3l.processes.worker import RecordedEnvironment

_TURNS = 10  # within which a careful customer must succeed (configs/envs/webshop.yaml, nano)


def build(name: str) -> Path:
    """Validate every task of a task set and write the file that is committed; its path."""
    content: dict[str, Any] = {"task_set": name, "catalogue": catalogue(name).meta.id, "splits": {}}
    for split in definition(name).splits:
        tasks = regenerate(name)[split]
        for task in tracked(tasks, f"validating {name}/{split}"):
            validate(task)
        content["splits"][split] = {**summary(tasks), "ids": [task.id for task in tasks]}
    return commit(ENV, name, content)


def validate(task: Task) -> int:
    """Play ``task`` with a careful customer; its number of turns. Raises DataError where that does not succeed."""
    played = DEMONSTRATOR.demonstrate(RecordedEnvironment(WebshopEngine()), task, 0, CAREFUL, _TURNS)
    if not played.success:
        raise DataError(
            f"task {task.id} is not solved in {_TURNS} turns by a careful customer, reward {played.reward:g}: "
            f"{[step.action for step in played.steps]}; change the catalogue in configs/task_sets"
        )
    return len(played.steps)
