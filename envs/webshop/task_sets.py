"""WebShop's task sets: which goals results are measured on, committed as counts, ids and hashes.

``NAME/SPLIT``: goals of a synthetic catalogue, defined in ``configs/task_sets/webshop_NAME.yaml`` and regenerated;
``task_sets/NAME.json`` shows whether the same ones came out. ``official/SPLIT`` and ``r3l/SPLIT``: goals of the
original catalogue by session number; the catalogue is the user's own, its size and hash are in every task id.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache

from r3l.envs.base.task_sets import check_hash, definition_path, name_and_split, sha256_of, split_hash
from r3l.envs.webshop.build import original, synthetic
from r3l.envs.webshop.catalogue import Catalogue, Meta
from r3l.envs.webshop.definitions import ENV, ORIGINAL_SPLITS, definition
from r3l.envs.webshop.goals import Goal
from r3l.envs.webshop.synthetic import is_hard

from r3l.core.errors import ConfigError
from r3l.core.task import Task

_FIRST_TRAIN = 1500


def tasks(task_set: str) -> list[Task]:
    """The tasks of ``NAME/SPLIT``, sorted by id. Raises DataError where they are not those that were committed."""
    name, split = name_and_split(ENV, task_set, _splits)
    if name in ORIGINAL_SPLITS:
        return _original_tasks(name, split)
    regenerated = regenerate(name)[split]
    check_hash(ENV, name, split, sha256_of(regenerated))
    return regenerated


def committed_hash(task_set: str) -> str:
    """The sha256 of a task set: committed for synthetic ones, that of the user's catalogue for the original's."""
    name, split = name_and_split(ENV, task_set, _splits)
    if name in ORIGINAL_SPLITS:
        return sha256_of(_original_tasks(name, split))
    return split_hash(ENV, name, split)


def sft_task(index: int, name: str = "nano") -> Task:
    """A goal that is in no split; numbered from 0, starting again at the end."""
    spare = regenerate(name)["sft"]
    return spare[index % len(spare)]


@lru_cache(maxsize=2)
def regenerate(name: str) -> dict[str, list[Task]]:
    """Every split's tasks and, under ``sft``, all goals that are left."""
    shop = catalogue(name)
    numbers: dict[str, list[int]] = {"easy": [], "hard": []}
    for number in range(shop.meta.goals):
        numbers["hard" if is_hard(shop.goal(number).options) else "easy"].append(number)
    left = {group: iter(of_group) for group, of_group in numbers.items()}
    splits: dict[str, list[Task]] = {}
    for split, counts in definition(name).splits.items():
        goals = {
            group: _next_goals(left[group], count, f"{definition_path(ENV, name)}: splits.{split}.{group}")
            for group, count in counts.items()
        }
        splits[split] = sorted(_tasks(shop, goals, split), key=lambda task: task.id)
    splits["sft"] = sorted(_tasks(shop, left, "sft"), key=lambda task: int(task.payload["goal"]))  # the groups mixed
    return splits


def _next_goals(numbers: Iterator[int], count: int, where: str) -> list[int]:
    goals = list(itertools.islice(numbers, count))
    if len(goals) < count:
        raise ConfigError(f"{where} is {count}, but the catalogue has only {len(goals)} such goals left")
    return goals


def _tasks(shop: Catalogue, goals: Mapping[str, Iterable[int]], split: str) -> Iterator[Task]:
    """The tasks of a split, whose goals are given by group."""
    for group, numbers in goals.items():
        for number in numbers:
            yield _task(shop.meta, shop.goal(number), number, split, group)


def catalogue(name: str) -> Catalogue:
    """The catalogue of a synthetic task set."""
    config = definition(name).catalogue
    return Catalogue.at(synthetic(name, config.products, config.seed, config.page_size)[0])


def _original_tasks(name: str, split: str) -> list[Task]:
    folder, meta = original()
    shop = Catalogue.at(folder)
    numbers = ORIGINAL_SPLITS[name][split] or range(_FIRST_TRAIN, meta.goals)
    return [_task(meta, shop.goal(number), number, split, "") for number in numbers]


def _task(meta: Meta, goal: Goal, number: int, split: str, group: str) -> Task:
    payload = {"catalogue": meta.id, "goal": number, "instruction": goal.instruction}
    return Task(f"{meta.id}/{number:05d}", "webshop", split, group or goal.category, payload)


def _splits(name: str) -> Collection[str]:
    return ORIGINAL_SPLITS[name] if name in ORIGINAL_SPLITS else definition(name).splits
