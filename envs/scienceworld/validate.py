"""Proves a task set: every stored solution is played to score 100, then the file to commit is written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from r3l.core.errors import DataError
from r3l.core.task import Task
from r3l.envs.base.task_sets import commit
from r3l.envs.scienceworld.engine import ScienceWorldEngine
from r3l.envs.scienceworld.selection import SPLITS
from r3l.envs.scienceworld.task_sets import ENV, chosen, definition, sha256_of
from r3l.runs.progress import tracked


def build(task_set: str) -> Path:
    """Write a task_set's committed file; its path. The selections of the paper and of ScienceWorld are only counted."""
    splits = SPLITS[task_set] if task_set in SPLITS else tuple(definition(task_set).splits)
    content: dict[str, Any] = {"task_set": task_set, "splits": {}}
    for split in splits:
        found = chosen(task_set, split)
        content["splits"][split] = {"count": len(found), "sha256": sha256_of(found)}
        if task_set not in SPLITS:
            _prove(found)
            content["splits"][split]["ids"] = [task.id for task in found]
    return commit(ENV, task_set, content)


def _prove(found: Sequence[Task]) -> None:
    engine = ScienceWorldEngine()
    for task in tracked(found, "proving tasks"):
        now = engine.reset(task)
        for action in task.payload["solution"]:
            now = engine.step(action)
        if not now.success:
            raise DataError(f"ScienceWorld task {task.id}: its stored solution does not reach score 100")
    engine.close()
