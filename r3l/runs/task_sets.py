"""Task sets as a manifest describes them: the committed, hashed lists of tasks that results are measured on."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from r3l.config import environment_of


def describe(env: str, task_set: str) -> dict[str, Any]:
    """Name, size and committed hash of a task set; loading its tasks checks that they have that hash.

    ``warning``, where there is one, says what a reader of its scores must know, ``constant`` what the best constant
    answer scores; tables show both.
    """
    package = environment_of(env)
    constant = package.constant_answer(task_set)
    optional = {"warning": package.warning(task_set), "constant": asdict(constant) if constant else None}
    return {
        "name": task_set,
        "sha256": package.task_set_hash(task_set),
        "tasks": len(package.tasks(task_set)),
        **{key: value for key, value in optional.items() if value},
    }
