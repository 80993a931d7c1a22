"""The task sets of mathematics: templated problems that are generated, and real data sets that are frozen by hash.

``NAME/SPLIT`` of configs/task_sets/math_NAME.yaml; ``SET/test`` and ``SET/train`` of ``r3l.envs.math.datasets``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from functools import lru_cache

from r3l.envs.base.package import ConstantAnswer
from r3l.envs.base.task_sets import check_hash, name_and_split, sha256_of, split_hash
from r3l.envs.math import datasets
from r3l.envs.math.arithmetic import problem
from r3l.envs.math.definitions import ENV, definition

from r3l.core.task import Task


def tasks(task_set: str) -> list[Task]:
    """The problems of a task set, sorted by id. Raises DataError where they are not those that were committed."""
    name, split = name_and_split(ENV, task_set, _splits)
    if name in datasets.SETS:
        return _records(name, split)
    problems = list(generated(name, split))
    check_hash(ENV, name, split, sha256_of(problems))
    return problems


def committed_hash(task_set: str) -> str:
    """The sha256 committed for a task set; generates and reads nothing.

    ``unfrozen`` for a set that nobody has frozen yet: its runs can be planned, and loading it is an error.
    """
    name, split = name_and_split(ENV, task_set, _splits)
    if name in datasets.SETS:
        return str(datasets.frozen().get(name, {"sha256": "unfrozen"})["sha256"])
    return split_hash(ENV, name, split)


def constant_answer(task_set: str) -> ConstantAnswer:
    """The most frequent answer and what always giving it would score, by group."""
    answers = [(task.group, str(task.payload["answer"])) for task in tasks(task_set)]
    ((best, _),) = Counter(answer for _, answer in answers).most_common(1)
    groups: dict[str, list[bool]] = {"all": [answer == best for _, answer in answers]}
    for group, answer in answers:
        groups.setdefault(group, []).append(answer == best)
    return ConstantAnswer(best, {group: sum(right) / len(right) for group, right in groups.items()})


@lru_cache(maxsize=8)
def generated(name: str, split: str) -> tuple[Task, ...]:
    """The problems of a split of a generated task set, no two alike and none of a split before it, sorted by id."""
    defined = definition(name)
    names = list(defined.splits)
    taken = {task.id for before in names[: names.index(split)] for task in generated(name, before)}
    problems: dict[str, Task] = {}
    for group, count in defined.splits[split].items():
        number, size = 0, len(problems) + count
        while len(problems) < size:
            task = problem(split, number, defined.operations[group])
            if task.id not in taken:
                problems.setdefault(task.id, task)
            number += 1
    return tuple(sorted(problems.values(), key=lambda task: task.id))


def _records(name: str, split: str) -> list[Task]:
    return [Task(r.id, ENV, split, r.lang, {"problem": r.problem, "answer": r.gold}) for r in datasets.load(name)]


def _splits(name: str) -> Collection[str]:
    return ("train", "test") if name in datasets.SETS else definition(name).splits
