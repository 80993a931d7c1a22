"""TaskSets: the committed, hashed task lists that results are measured on."""

from __future__ import annotations

from typing import Any

from r3l.core.environment import find_package


def describe(env: str, task_set: str) -> dict[str, Any]:
    """Name, size and committed hash of a task set; loading its tasks checks that they have that hash.

    ``warning``, where there is one, says what a reader of its scores must know, ``constant`` what the best constant
    answer scores; tables show both.
    """
    package = find_package(env)
    found = {"name": task_set, "sha256": package.task_set_hash(task_set), "tasks": len(package.tasks(task_set))}
    more = {"warning": package.warning(task_set), "constant": package.constant(task_set)}
    return found | {key: value for key, value in more.items() if value}
