"""Panels: the committed, hashed task lists that results are measured on."""

from __future__ import annotations

from typing import Any

from r3l.core.pool import find_package


def describe(env: str, panel: str) -> dict[str, Any]:
    """Name, size and committed hash of a panel; loading its tasks checks that they have that hash."""
    package = find_package(env)
    return {"name": panel, "sha256": package.panel_hash(panel), "tasks": len(package.tasks(panel))}
