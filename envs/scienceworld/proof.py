"""Proves a panel: every stored solution is played to score 100, then the file to commit is written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from envs.panels import commit
from envs.scienceworld.engine import ScienceWorldEngine
from envs.scienceworld.panels import ENV, chosen, definition, sha256_of
from envs.scienceworld.selection import SPLITS
from r3l.core.errors import DataError
from r3l.core.task import Task


def build(panel: str) -> Path:
    """Write a panel's committed file; its path. The selections of the paper and of ScienceWorld are only counted."""
    splits = SPLITS[panel] if panel in SPLITS else tuple(definition(panel).splits)
    content: dict[str, Any] = {"panel": panel, "splits": {}}
    for split in splits:
        found = chosen(panel, split)
        content["splits"][split] = {"count": len(found), "sha256": sha256_of(found)}
        if panel not in SPLITS:
            _prove(found)
            content["splits"][split]["ids"] = [task.id for task in found]
    return commit(ENV, panel, content)


def _prove(found: Sequence[Task]) -> None:
    engine = ScienceWorldEngine()
    for task in found:
        now = engine.reset(task)
        for action in task.payload["solution"]:
            now = engine.step(action)
        if not now.success:
            raise DataError(f"ScienceWorld task {task.id}: its stored solution does not reach score 100")
    engine.close()
