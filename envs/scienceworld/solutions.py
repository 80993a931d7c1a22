"""The stored solutions of the nano task set's problems (``r3l.envs.scienceworld.gold`` makes them)."""

from __future__ import annotations

import json
from collections.abc import Collection
from functools import cache
from pathlib import Path

from r3l.core.errors import DataError

STORED = Path(__file__).resolve().parent / "task_sets" / "gold.json"


def solution(task_id: str) -> list[str]:
    """The stored solution of a problem. Raises DataError where there is none."""
    actions = stored().get(task_id)
    if actions is None:
        raise DataError(f"{STORED}: no solution of {task_id}; generate it: python -m r3l.envs.scienceworld.gold")
    return list(actions)


def solved() -> Collection[str]:
    """The ids of the problems with a stored solution."""
    return stored().keys()


@cache
def stored() -> dict[str, list[str]]:
    """All of them, by problem."""
    try:
        return dict(json.loads(STORED.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise DataError(f"{STORED} is missing or damaged ({error}). Restore it: git checkout {STORED.name}") from error


def store(solutions: dict[str, list[str]], path: Path = STORED) -> None:
    """Write ``solutions``, one a line, sorted by id."""
    lines = [f"{json.dumps(key)}: {json.dumps(solutions[key])}" for key in sorted(solutions)]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    stored.cache_clear()
