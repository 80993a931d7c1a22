"""Proves a task set: every house is played to its win, then the file to commit is written."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from r3l.core.environment import Environment
from r3l.envs.alfworld.engine import AlfworldEngine
from r3l.envs.alfworld.houses import prove
from r3l.envs.alfworld.task_sets import ENV, definition, regenerate, sha256_of
from r3l.envs.base.task_sets import commit
from r3l.runs.progress import tracked


def build(task_set: str, engine: Environment | None = None) -> Path:
    """Play every task of a task set of houses to its win and write the file to commit; its path."""
    defined = definition(task_set)
    player = engine or AlfworldEngine()
    splits: dict[str, Any] = {}
    for split in defined.splits:
        proved = [prove(task, player) for task in tracked(regenerate(defined, split), f"proving {task_set}/{split}")]
        rejected: Counter[str] = Counter()
        for task in proved:
            rejected.update(task.payload["rejected"])
        splits[split] = {
            "count": len(proved),
            "sha256": sha256_of(proved),
            "rejected_draws": dict(sorted(rejected.items())),
            "ids": [task.id for task in proved],
        }
    return commit(ENV, task_set, {"task_set": task_set, "splits": splits})
