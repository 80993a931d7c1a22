"""Task sets of ALFWorld: generated houses, and the published games.

Houses are regenerated from their seeds. For a split of published games (``valid_seen``, ``valid_unseen``,
``train``, ``valid_train``) a count and a hash of ids are committed, for a subset (``agentbench``) its ids;
the games themselves are the user's own download.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from pydantic import Field, model_validator
from r3l.envs.alfworld.engine.games import EXPECTED_GAMES, LISTED, ids_sha256, load_game, load_games
from r3l.envs.alfworld.task_sets.houses import generate
from r3l.envs.alfworld.task_sets.rooms import House
from r3l.envs.base import task_sets
from r3l.envs.base.task_sets import DefinedTaskSets, DefinitionModel, committed, committed_path, in_id_order

from r3l.core.errors import ConfigError, DataError
from r3l.core.task import Task


class HouseGroup(DefinitionModel):
    """A group of houses for which results are reported separately.

    ``families``: ALFWorld's task types, such as ``pick_and_place_simple``; the group's houses take them in
    turn. ``receptacles``, ``objects``: their numbers in each house.
    """

    families: tuple[str, ...] = Field(min_length=1)
    receptacles: int
    objects: int


class HouseSplit(DefinitionModel):
    """A split: ``counts`` houses of each group, seeded one after the other from ``first_seed`` on."""

    first_seed: int = Field(ge=0)
    counts: Mapping[str, int]


class AlfworldDefinition(task_sets.TaskSetDefinition):
    """Contents of configs/task_sets/alfworld_NAME.yaml: houses by group and split.

    ``sft_first_seed``: first seed of the houses for SFT. The seeds of splits and of SFT must not overlap.
    """

    groups: Mapping[str, HouseGroup]
    splits: Mapping[str, HouseSplit]
    sft_first_seed: int

    def seeds(self, split: str) -> range:
        """The seeds of a split's houses: its groups one after the other, in the order of the definition."""
        first = self.splits[split].first_seed
        return range(first, first + sum(self.splits[split].counts.values()))

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for name, split in self.splits.items():
            unknown = sorted(set(split.counts) - set(self.groups))
            if unknown:
                raise ValueError(f"splits.{name}.counts names unknown groups {', '.join(unknown)}")

        # Each split must end before the next one begins, and the last one before the seeds of SFT.
        names = sorted(self.splits, key=lambda name: self.seeds(name).start)
        starts = [*((self.seeds(name).start, name) for name in names), (self.sft_first_seed, "sft")]
        for name, (following, other) in zip(names, starts[1:], strict=True):
            seeds = self.seeds(name)
            if seeds.stop > following:
                raise ValueError(f"the seeds of {name} ({seeds}) overlap those of {other} ({following}..)")
        return self


class AlfworldTaskSets(DefinedTaskSets[AlfworldDefinition]):
    """The task sets of ALFWorld: generated houses (``NAME/SPLIT``) and published games (``SPLIT``).

    A house takes about 1 ms to generate.
    """

    env = "alfworld"
    definition_type = AlfworldDefinition
    others = dict.fromkeys([*EXPECTED_GAMES, *LISTED], ("",))

    def tasks(self, task_set: str) -> list[Task]:
        if task_set not in self.others:
            return super().tasks(task_set)
        entry = committed(self.env, task_set)
        if task_set in LISTED:
            sha256 = ids_sha256(entry["ids"])
            if sha256 != entry["sha256"]:
                path = committed_path(self.env, task_set)
                raise DataError(
                    f"{task_set}: expected ids with sha256 {entry['sha256']}, found {sha256}: {path} was edited. "
                    f"Restore it (git checkout {path})"
                )
            return [load_game(game_id) for game_id in entry["ids"]]
        games = list(load_games(task_set, expected=int(entry["count"])))
        sha256 = ids_sha256(task.id for task in games)
        if sha256 != entry["sha256"]:
            raise DataError(
                f"{task_set}: expected ids with sha256 {entry['sha256']}, found {sha256}: these are other "
                "games. Fetch the published ones with alfworld-download -f."
            )
        return games

    def committed_hash(self, task_set: str) -> str:
        if task_set not in self.others:
            return super().committed_hash(task_set)
        return str(committed(self.env, task_set)["sha256"])

    def parts(self, task_set: str) -> tuple[str, str]:
        if "/" not in task_set:
            raise ConfigError(
                f"ALFWorld task set {task_set!r} is unknown; published games: {', '.join(self.others)}; "
                "houses: NAME/SPLIT, e.g. nano/test"
            )
        return super().parts(task_set)

    def regenerate(self, name: str, split: str) -> list[Task]:
        houses = self.definition(name)
        seed = houses.splits[split].first_seed
        tasks = []
        for group, count in houses.splits[split].counts.items():
            for index in range(count):
                tasks.append(_house(houses, group, index, seed, split))
                seed += 1
        return in_id_order(tasks)

    def spare_task(self, name: str, index: int) -> Task:
        if index < 0:
            raise ConfigError(f"SFT task {index}: indices start at 0")
        houses = self.definition(name)
        groups = list(houses.groups)
        seed = houses.sft_first_seed + index
        return _house(houses, groups[index % len(groups)], index // len(groups), seed, "sft")

    def validate(self, task: Task) -> None:
        """Play the task's walkthrough. Raises DataError unless it wins, by its last action."""
        from r3l.envs.alfworld.engine.text_engine import AlfworldEngine

        engine = AlfworldEngine()
        now = engine.reset(task)
        played: list[str] = []
        for action in task.payload["walkthrough"]:
            if now.success or action not in now.admissible:
                raise DataError(f"{task.id}: {action!r} is not needed or not possible after {played}")
            now = engine.step(action)
            played.append(action)
        engine.close()
        if not now.success:
            raise DataError(f"{task.id}: its walkthrough {played} does not win")

    def sha256(self, tasks: Iterable[Task]) -> str:
        """Hex sha256 of id, group, sentence, problem and walkthrough of ``tasks``, in the order of ids."""
        digest = hashlib.sha256()
        for task in in_id_order(tasks):
            content = {key: task.payload[key] for key in ("goal_text", "pddl_problem", "walkthrough")}
            digest.update(json.dumps([task.id, task.group, content], sort_keys=True).encode("utf-8") + b"\n")
        return digest.hexdigest()

    def summary(self, tasks: Sequence[Task]) -> dict[str, Any]:
        rejected: Counter[str] = Counter()
        for task in tasks:
            rejected.update(task.payload["rejected"])
        return {
            "count": len(tasks),
            "sha256": self.sha256(tasks),
            "rejected_draws": dict(sorted(rejected.items())),
            "ids": [task.id for task in tasks],
        }


def _house(houses: AlfworldDefinition, name: str, index: int, seed: int, split: str) -> Task:
    """House ``index`` of the group ``name``."""
    group = houses.groups[name]
    family = group.families[index % len(group.families)]
    return generate(House(family, seed, group.receptacles, group.objects), split, name)


TASK_SETS = AlfworldTaskSets()
