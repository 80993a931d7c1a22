"""Proves a panel: a careful customer succeeds in every task, then the file to commit is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from envs.lessons import CAREFUL, demonstrate
from envs.panels import commit, summary
from envs.webshop.definitions import ENV, definition
from envs.webshop.engine import WebshopEngine
from envs.webshop.lessons import CURRICULUM
from envs.webshop.panels import catalogue, regenerate
from r3l.core.errors import DataError
from r3l.core.task import Task
from r3l.core.worker import Recorded

_PROOF_TURNS = 10  # within which a careful customer must succeed (configs/envs/webshop.yaml, nano)


def build(name: str) -> Path:
    """Prove every task of a panel solvable and write the file that is committed."""
    content: dict[str, Any] = {"panel": name, "catalogue": catalogue(name).meta.id, "splits": {}}
    for split in definition(name).splits:
        found = regenerate(name)[split]
        for task in found:
            prove(task)
        content["splits"][split] = {**summary(found), "ids": [task.id for task in found]}
    return commit(ENV, name, content)


def prove(task: Task) -> int:
    """Play ``task`` with a careful customer; its number of turns. Raises DataError where that does not succeed."""
    played = demonstrate(CURRICULUM, Recorded(WebshopEngine()), task, 0, CAREFUL, _PROOF_TURNS)
    if not played.success:
        raise DataError(
            f"task {task.id} is not solved in {_PROOF_TURNS} turns by a careful customer, reward {played.reward:g}: "
            f"{[step.action for step in played.steps]}; change the catalogue in configs/panels"
        )
    return len(played.steps)
