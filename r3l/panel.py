"""Panels: the committed, hashed task lists that results are measured on."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from r3l.core.pool import find_package
from r3l.core.task import Task


def digest(tasks: Sequence[Task]) -> str:
    """sha256 over the sorted task ids."""
    return hashlib.sha256("\n".join(sorted(t.id for t in tasks)).encode()).hexdigest()


def describe(env: str, panel: str) -> dict[str, Any]:
    """Name, size and hash of a panel, as manifests and evaluations state it."""
    tasks = find_package(env).tasks(panel)
    return {"name": panel, "sha256": digest(tasks), "tasks": len(tasks)}
