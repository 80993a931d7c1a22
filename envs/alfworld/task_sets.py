"""ALFWorld's task sets: which tasks results are measured on, committed as counts, ids and hashes.

A task set of our houses is defined in ``configs/task_sets/alfworld_NAME.yaml`` and regenerated from its seeds; what is
committed beside this module (``task_sets/NAME.json``) is the proof that the same tasks came out. A task set of
published games (``valid_seen``, ``valid_unseen``, ``train``) is a count and a hash; the games are the user's own
download.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import Field
from r3l.envs.alfworld.games import EXPECTED_GAMES, ids_sha256, load_games
from r3l.envs.alfworld.houses import generate
from r3l.envs.alfworld.rooms import House
from r3l.envs.base.task_sets import (
    Strict,
    check_hash,
    committed,
    definition_path,
    name_and_split,
    read_definition,
    split_hash,
)

from r3l.core.errors import ConfigError, DataError
from r3l.core.task import Task

ENV = "alfworld"
PUBLISHED = tuple(EXPECTED_GAMES)


class Group(Strict):
    """A stratum of houses that results are reported by."""

    families: tuple[str, ...] = Field(min_length=1)
    receptacles: int
    objects: int


class Split(Strict):
    """Seeds ``first_seed`` onwards; ``counts`` tasks of each group, its families taking turns."""

    first_seed: int = Field(ge=0)
    counts: Mapping[str, int]


class Definition(Strict):
    """configs/task_sets/alfworld_NAME.yaml."""

    name: str
    groups: Mapping[str, Group]
    splits: Mapping[str, Split]
    sft_first_seed: int
    sources: Mapping[str, str]

    def seeds(self, split: str) -> range:
        """The seeds of a split; its groups take turns in the order of the definition."""
        first = self.splits[split].first_seed
        return range(first, first + sum(self.splits[split].counts.values()))


def tasks(task_set: str) -> list[Task]:
    """The tasks of ``NAME/SPLIT`` (houses; about 1 ms each) or of a published split, sorted by id.

    Raises DataError where they are not there, or not those that were committed; ConfigError for an unknown task set.
    """
    if "/" not in task_set:
        return _published_tasks(task_set)
    name, split = name_and_split(ENV, task_set, _splits)
    houses = regenerate(definition(name), split)
    check_hash(ENV, name, split, sha256_of(houses))
    return houses


def _published_tasks(split: str) -> list[Task]:
    proof = _published(split)
    games = list(load_games(split, expected=int(proof["count"])))
    sha256 = ids_sha256(task.id for task in games)
    if sha256 != proof["sha256"]:
        raise DataError(
            f"{split}: expected ids with sha256 {proof['sha256']}, found {sha256}: these are other games. "
            "Fetch the published ones with alfworld-download -f."
        )
    return games


def committed_hash(task_set: str) -> str:
    """The sha256 committed for ``NAME/SPLIT`` or for a published split; reads no task."""
    if "/" not in task_set:
        return str(_published(task_set)["sha256"])
    name, split = name_and_split(ENV, task_set, _splits)
    return split_hash(ENV, name, split)


def _published(split: str) -> dict[str, Any]:
    """What is committed of a published split. Raises ConfigError where there is no such split."""
    if split not in PUBLISHED:
        raise ConfigError(
            f"ALFWorld task set {split!r} is unknown; published games: {', '.join(PUBLISHED)}; houses: NAME/SPLIT"
        )
    return committed(ENV, split)


def _splits(name: str) -> Collection[str]:
    return definition(name).splits


def sft_task(index: int, name: str = "nano") -> Task:
    """House ``index`` (from 0, without end) of those that start models are taught on; in no split of the task set."""
    if index < 0:
        raise ConfigError(f"SFT task {index}: indices start at 0")
    houses = definition(name)
    groups = list(houses.groups)
    seed = houses.sft_first_seed + index
    return _house(houses, groups[index % len(groups)], index // len(groups), seed, "sft")


def sha256_of(tasks: Iterable[Task]) -> str:
    """A hash of ids, groups, sentences, problems and walkthroughs: of all that a task is made of."""
    digest = hashlib.sha256()
    for task in sorted(tasks, key=lambda task: task.id):
        content = {key: task.payload[key] for key in ("goal_text", "pddl_problem", "walkthrough")}
        digest.update(json.dumps([task.id, task.group, content], sort_keys=True).encode("utf-8") + b"\n")
    return digest.hexdigest()


@lru_cache(maxsize=8)
def definition(name: str) -> Definition:
    """Read the definition of a task set. Raises ConfigError where it is unknown, malformed, or its seeds overlap."""
    houses = read_definition(Definition, ENV, name, "the published games, " + ", ".join(PUBLISHED))
    _check(houses, definition_path(ENV, name))
    return houses


def _check(houses: Definition, path: Path) -> None:
    for name, split in houses.splits.items():
        unknown = sorted(set(split.counts) - set(houses.groups))
        if unknown:
            raise ConfigError(f"{path}: splits.{name}.counts names unknown groups {', '.join(unknown)}")
    ranges = sorted(((houses.seeds(name), name) for name in houses.splits), key=lambda pair: pair[0].start)
    ends = [*((seeds.start, name) for seeds, name in ranges[1:]), (houses.sft_first_seed, "sft")]
    for (seeds, name), (following, other) in zip(ranges, ends, strict=True):
        if seeds.stop > following:
            raise ConfigError(f"{path}: the seeds of {name} ({seeds}) reach into those of {other} ({following}..)")


def regenerate(houses: Definition, split: str) -> list[Task]:
    """The houses of a split, made from its seeds, whatever was committed; sorted by id."""
    seeds = iter(houses.seeds(split))
    tasks = [
        _house(houses, group, index, next(seeds), split)
        for group, count in houses.splits[split].counts.items()
        for index in range(count)
    ]
    return sorted(tasks, key=lambda task: task.id)


def _house(houses: Definition, name: str, index: int, seed: int, split: str) -> Task:
    group = houses.groups[name]
    family = group.families[index % len(group.families)]
    return generate(House(family, seed, group.receptacles, group.objects), split, name)
