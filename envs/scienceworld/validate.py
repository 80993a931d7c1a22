"""Validates a task set: every stored solution is played to score 100, then the file to commit is written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from r3l.envs.base.task_sets import commit
from r3l.envs.scienceworld.engine import ScienceWorldEngine
from r3l.envs.scienceworld.selection import SPLITS
from r3l.envs.scienceworld.task_sets import ENV, definition, regenerate, sha256_of

from r3l.core.errors import DataError
from r3l.core.task import Task
from r3l.processes.progress import tracked


def build(name: str) -> Path:
    """Write the committed file of a task set; its path.

    The selections of the paper and of ScienceWorld are only counted: they have no stored solutions.
    """
    splits = SPLITS[name] if name in SPLITS else tuple(definition(name).splits)
    content: dict[str, Any] = {"task_set": name, "splits": {}}
    for split in splits:
        tasks = regenerate(name, split)
        content["splits"][split] = {"count": len(tasks), "sha256": sha256_of(tasks)}
        if name not in SPLITS:
            _validate(tasks)
            content["splits"][split]["ids"] = [task.id for task in tasks]
    return commit(ENV, name, content)


def _validate(tasks: Sequence[Task]) -> None:
    engine = ScienceWorldEngine()
    for task in tracked(tasks, "validating tasks"):
        now = engine.reset(task)
        for action in task.payload["solution"]:
            now = engine.step(action)
        if not now.success:
            raise DataError(f"ScienceWorld task {task.id}: its stored solution does not reach score 100")
    engine.close()
