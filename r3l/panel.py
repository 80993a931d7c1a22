"""Panels: the committed, hashed task lists that results are measured on."""

from __future__ import annotations

from typing import Any

from r3l.core.environment import find_package


def describe(env: str, panel: str) -> dict[str, Any]:
    """Name, size and committed hash of a panel; loading its tasks checks that they have that hash.

    ``caution``, where there is one, says what a reader of its scores must know, ``constant`` what the best constant
    answer scores; tables show both.
    """
    package = find_package(env)
    found = {"name": panel, "sha256": package.panel_hash(panel), "tasks": len(package.tasks(panel))}
    more = {"caution": package.caution(panel), "constant": package.constant(panel)}
    return found | {key: value for key, value in more.items() if value}
