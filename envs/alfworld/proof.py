"""Proves a panel: every house is played to its win, then the file to commit is written."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from envs.alfworld.engine import AlfworldEngine
from envs.alfworld.houses import prove
from envs.alfworld.panels import ENV, definition, regenerate, sha256_of
from envs.panels import commit
from r3l.core.environment import Environment


def build(panel: str, engine: Environment | None = None) -> Path:
    """Play every task of a panel of houses to its win and write the file to commit; its path."""
    defined = definition(panel)
    player = engine or AlfworldEngine()
    splits: dict[str, Any] = {}
    for split in defined.splits:
        proved = [prove(task, player) for task in regenerate(defined, split)]
        rejected: Counter[str] = Counter()
        for task in proved:
            rejected.update(task.payload["rejected"])
        splits[split] = {
            "count": len(proved),
            "sha256": sha256_of(proved),
            "rejected_draws": dict(sorted(rejected.items())),
            "ids": [task.id for task in proved],
        }
    return commit(ENV, panel, {"panel": panel, "splits": splits})
