"""Validates a task set: every house is played to its win, then the file to commit is written."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from r3l.envs.alfworld.engine import AlfworldEngine
from r3l.envs.alfworld.task_sets import ENV, definition, regenerate, sha256_of
from r3l.envs.base.task_sets import commit

from r3l.core.environment import Environment
from r3l.core.errors import DataError
from r3l.core.task import Task
from r3l.processes.progress import tracked


def build(name: str, engine: Environment | None = None) -> Path:
    """Play every task of a task set of houses to its win and write the file to commit; its path."""
    defined = definition(name)
    player = engine or AlfworldEngine()
    splits: dict[str, Any] = {}
    for split in defined.splits:
        tasks = [validate(task, player) for task in tracked(regenerate(defined, split), f"validating {name}/{split}")]
        rejected: Counter[str] = Counter()
        for task in tasks:
            rejected.update(task.payload["rejected"])
        splits[split] = {
            "count": len(tasks),
            "sha256": sha256_of(tasks),
            "rejected_draws": dict(sorted(rejected.items())),
            "ids": [task.id for task in tasks],
        }
    return commit(ENV, name, {"task_set": name, "splits": splits})


def validate(task: Task, engine: Environment) -> Task:
    """``task`` with the walkthrough that won when played. Raises DataError when it does not win, or too early."""
    now, played = engine.reset(task), list[str]()
    for action in task.payload["walkthrough"]:
        if now.success or action not in now.admissible:
            raise DataError(f"{task.id}: {action!r} is not needed or not possible after {played}")
        now = engine.step(action)
        played.append(action)
    if not now.success:
        raise DataError(f"{task.id}: its walkthrough {played} does not win")
    return replace(task, payload={**task.payload, "walkthrough": played})
