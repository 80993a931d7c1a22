"""The panels of mathematics: templated problems that are generated, and real data sets that are frozen by hash.

``NAME/SPLIT`` of configs/panels/math_NAME.yaml; ``SET/test`` and ``SET/train`` of ``envs.math.datasets``.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import Any

from envs.math import datasets
from envs.math.arithmetic import problem
from envs.math.definitions import ENV, definition
from envs.panels import check, sha256_of, split_hash
from r3l.core.errors import ConfigError
from r3l.core.task import Task


def tasks(panel: str) -> list[Task]:
    """The problems of a panel, sorted by id. Raises DataError where they are not those that were committed."""
    name, split = _parts(panel)
    if name in datasets.frozen():
        return _records(name, split)
    found = list(generated(name, split))
    check(ENV, name, split, sha256_of(found))
    return found


def committed_hash(panel: str) -> str:
    """The sha256 committed for a panel; generates and reads nothing."""
    name, split = _parts(panel)
    if name in datasets.frozen():
        return str(datasets.frozen()[name]["sha256"])
    return split_hash(ENV, name, split)


def constant(panel: str) -> dict[str, Any]:
    """The most frequent answer and what always giving it would score, by group."""
    answers = [(task.group, str(task.payload["answer"])) for task in tasks(panel)]
    ((best, _),) = Counter(answer for _, answer in answers).most_common(1)
    groups: dict[str, list[bool]] = {"all": [answer == best for _, answer in answers]}
    for group, answer in answers:
        groups.setdefault(group, []).append(answer == best)
    return {"answer": best, "success": {group: sum(right) / len(right) for group, right in groups.items()}}


@lru_cache(maxsize=8)
def generated(name: str, split: str) -> tuple[Task, ...]:
    """The problems of a split of a generated panel, no two alike, sorted by id."""
    defined = definition(name)
    found: dict[str, Task] = {}
    for group, count in defined.splits[split].items():
        number, wanted = 0, len(found) + count
        while len(found) < wanted:
            task = problem(split, number, defined.operations[group])
            found.setdefault(task.id, task)
            number += 1
    return tuple(sorted(found.values(), key=lambda task: task.id))


def _records(name: str, split: str) -> list[Task]:
    return [Task(r.id, ENV, split, r.lang, {"problem": r.problem, "answer": r.gold}) for r in datasets.load(name)]


def _parts(panel: str) -> tuple[str, str]:
    name, slash, split = panel.partition("/")
    if not slash:
        raise ConfigError(f"{ENV} panel {panel!r} must look like NAME/SPLIT, e.g. nano/test or math500/test")
    if name not in datasets.frozen() and split not in definition(name).splits:
        raise ConfigError(f"{ENV} panel {name} has no split {split!r}; it has {', '.join(definition(name).splits)}")
    return name, split
