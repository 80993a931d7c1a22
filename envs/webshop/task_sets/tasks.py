"""Task sets of WebShop: the goals that results are measured on.

``NAME/SPLIT`` has goals of a synthetic catalogue; ``official/SPLIT``, ``r3l/SPLIT`` and
``agentbench/SPLIT`` have goals of the original catalogue by session number. Users build the original
catalogue themselves; its size and hash are in every task id.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from r3l.envs.base.task_sets import DefinedTaskSets, definition_path, in_id_order, tasks_sha256
from r3l.envs.webshop.engine.build import VARIABLE, WebShopDefinition, definition, original, synthetic
from r3l.envs.webshop.engine.catalogue import Catalogue, Meta
from r3l.envs.webshop.engine.goals import Goal
from r3l.envs.webshop.engine.synthetic import is_hard

from r3l.core.errors import ConfigError, DataError
from r3l.core.named_folders import named_folder
from r3l.core.task import Task

# Session numbers. official: the original's baseline_models/env.py; r3l: the R3L release's data script;
# agentbench: its configs/tasks/webshop.yaml.
ORIGINAL_SPLITS: Mapping[str, Mapping[str, range | None]] = {
    "official": {"test": range(500), "dev": range(500, 1500), "train": None},  # None: from 1500 to the end
    "r3l": {"train": range(4096), "test": range(4096, 4196)},
    "agentbench": {"test": range(200)},
}
WARNINGS: Mapping[str, str] = {
    "r3l/train": "trains on all of official/test and official/dev",
    "r3l/test": "is in official/train; methods trained on r3l/train have seen official/test",
}
_FIRST_TRAIN = 1500
_TURNS = 10  # an error-free expert must succeed within this many (configs/envs/webshop.yaml, nano)


class WebshopTaskSets(DefinedTaskSets[WebShopDefinition]):
    """Task sets of synthetic and original goals.

    No file is committed for original goals; their hash is taken of the tasks from the user's catalogue,
    and is ``unbuilt`` without one.
    """

    env = "webshop"
    definition_type = WebShopDefinition
    others = {name: tuple(splits) for name, splits in ORIGINAL_SPLITS.items()}

    def tasks(self, task_set: str) -> list[Task]:
        name, split = self.parts(task_set)
        if name in ORIGINAL_SPLITS:
            return self.regenerate(name, split)
        return super().tasks(task_set)

    def committed_hash(self, task_set: str) -> str:
        """The sha256 of a task set; ``unbuilt`` for the original's goals if their catalogue is not built.

        So runs on the original's goals can be planned without the catalogue; loading the tasks needs it.
        """
        name, split = self.parts(task_set)
        if name not in ORIGINAL_SPLITS:
            return super().committed_hash(task_set)
        if named_folder(VARIABLE) is None:
            return "unbuilt"
        return tasks_sha256(self.regenerate(name, split))

    def regenerate(self, name: str, split: str) -> list[Task]:
        if name in ORIGINAL_SPLITS:
            return original_tasks(name, split)
        return allotted(name)[split]

    def spare_task(self, name: str, index: int) -> Task:
        """SFT task ``index`` of task set ``name``: a goal that is in no split; after the last, the first.

        Raises ConfigError unless it is a synthetic task set.
        """
        spare = allotted(name)["sft"]
        return spare[index % len(spare)]

    def validate(self, task: Task) -> None:
        """Raise DataError unless an error-free expert solves ``task``."""
        from r3l.envs.webshop import ENVIRONMENT

        (played,) = ENVIRONMENT.expert_demonstrations([task], _TURNS)
        if not played.success:
            raise DataError(
                f"an error-free expert does not solve task {task.id} in {_TURNS} turns, reward "
                f"{played.reward:g}: {[step.action for step in played.steps]}; change the catalogue in "
                "configs/task_sets"
            )

    def summary(self, tasks: Sequence[Task]) -> dict[str, Any]:
        return {**super().summary(tasks), "ids": [task.id for task in tasks]}

    def about(self, name: str) -> dict[str, Any]:
        return {"catalogue": catalogue(name).meta.id}


TASK_SETS = WebshopTaskSets()


@lru_cache(maxsize=2)
def allotted(name: str) -> dict[str, list[Task]]:
    """The tasks of each split of a synthetic task set and, under ``sft``, the tasks of all remaining goals.

    Cached. Builds the catalogue if needed. Raises ConfigError if it has too few goals.
    """
    # Goals by group, in the order of the catalogue
    shop = catalogue(name)
    numbers: dict[str, list[int]] = {"easy": [], "hard": []}
    for number in range(shop.meta.goals):
        numbers["hard" if is_hard(shop.goal(number).options) else "easy"].append(number)

    # Each split takes the next goals of its groups.
    left = {group: iter(of_group) for group, of_group in numbers.items()}
    splits: dict[str, list[Task]] = {}
    for split, counts in definition(name).splits.items():
        goals: dict[str, list[int]] = {}
        for group, count in counts.items():
            goals[group] = list(itertools.islice(left[group], count))
            if len(goals[group]) < count:
                raise ConfigError(
                    f"{definition_path('webshop', name)}: splits.{split}.{group} is {count}, but the "
                    f"catalogue has only {len(goals[group])} such goals left"
                )
        splits[split] = in_id_order(_tasks(shop, goals, split))

    # SFT tasks in the order of the catalogue, so that the groups are mixed.
    splits["sft"] = sorted(_tasks(shop, left, "sft"), key=lambda task: int(task.payload["goal"]))
    return splits


def _tasks(shop: Catalogue, goals: Mapping[str, Iterable[int]], split: str) -> Iterator[Task]:
    """The tasks of a split; ``goals``: session numbers by group."""
    for group, numbers in goals.items():
        for number in numbers:
            yield _task(shop.meta, shop.goal(number), number, split, group)


def catalogue(name: str) -> Catalogue:
    """The catalogue of a synthetic task set, opened; it is built if it is missing."""
    config = definition(name).catalogue
    folder, _ = synthetic(name, config.products, config.seed, config.page_size)
    return Catalogue.at(folder)


def original_tasks(name: str, split: str) -> list[Task]:
    """The tasks of a split of ORIGINAL_SPLITS, from the original's catalogue that ``$R3L_WEBSHOP`` names.

    Raises DataError without that catalogue, or if it has too few goals.
    """
    folder, meta = original()
    shop = Catalogue.at(folder)
    numbers = ORIGINAL_SPLITS[name][split] or range(_FIRST_TRAIN, meta.goals)
    return [_task(meta, shop.goal(number), number, split, "") for number in numbers]


def _task(meta: Meta, goal: Goal, number: int, split: str, group: str) -> Task:
    payload = {"catalogue": meta.id, "goal": number, "instruction": goal.instruction}
    return Task(f"{meta.id}/{number:05d}", "webshop", split, group or goal.category, payload)
