"""ALFWorld's task sets: which tasks results are measured on, committed as counts, ids and hashes.

A task set of our houses is defined in ``configs/task_sets/alfworld_NAME.yaml`` and regenerated from its seeds; what is
committed beside this module (``task_sets/NAME.json``) is the proof that the same tasks came out. A task set of
published games (``valid_seen``, ``valid_unseen``, ``train``) is a count and a hash; the games are the user's own
download.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

from pydantic import Field

from r3l.core.errors import ConfigError, DataError
from r3l.core.task import Task
from r3l.envs.alfworld.houses import generate
from r3l.envs.base.task_sets import Strict, check, committed, definition_path, read_definition, split_hash

OFFICIAL = ("train", "valid_seen", "valid_unseen")
ENV = "alfworld"


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


def load(task_set: str, split: str) -> list[Task]:
    """The tasks of a split of a task set of houses, sorted by id. About 1 ms a task; needs no engine.

    Raises DataError where they are not those that were committed, ConfigError for an unknown task set or split.
    """
    tasks = regenerate(definition(task_set), split)
    check(ENV, task_set, split, sha256_of(tasks))
    return tasks


def loadofficial(split: str, root: str | Path | None = None) -> list[Task]:
    """The published games of a split, sorted by id. Raises DataError when they are not there or others."""
    from r3l.envs.alfworld.games import ids_sha256, load_games

    expected = committed(ENV, official(split))
    tasks = list(load_games(split, root, int(expected["count"])))
    found = ids_sha256(task.id for task in tasks)
    if found != expected["sha256"]:
        raise DataError(
            f"{split}: expected ids with sha256 {expected['sha256']}, found {found}: these are other games. "
            "Fetch the published ones with alfworld-download -f."
        )
    return tasks


def tasks(task_set: str) -> list[Task]:
    """The tasks of ``NAME/SPLIT`` (houses) or of a published split."""
    name, slash, split = task_set.partition("/")
    return load(name, split) if slash else loadofficial(name)


def committed_hash(task_set: str) -> str:
    """The sha256 committed for ``NAME/SPLIT`` or for a published split; reads no task."""
    name, slash, split = task_set.partition("/")
    if not slash:
        return str(committed(ENV, official(name))["sha256"])
    if split not in definition(name).splits:
        raise ConfigError(
            f"ALFWorld task set {name} has no split {split!r}; it has {', '.join(definition(name).splits)}"
        )
    return split_hash(ENV, name, split)


def sft_task(index: int, task_set: str = "nano") -> Task:
    """Task ``index`` (from 0, without end) of those that pretraining demonstrates; in no split of the task set."""
    defined = definition(task_set)
    if index < 0:
        raise ConfigError(f"warm-start task {index}: indices start at 0")
    groups = list(defined.groups)
    return _task(
        defined,
        groups[index % len(groups)],
        index // len(groups),
        defined.sft_first_seed + index,
        "sft",
    )


def sha256_of(tasks: Iterable[Task]) -> str:
    """A hash of ids, groups, sentences, problems and walkthroughs: of all that a task is made of."""
    digest = hashlib.sha256()
    for task in sorted(tasks, key=lambda task: task.id):
        content = {key: task.payload[key] for key in ("goal_text", "pddl_problem", "walkthrough")}
        digest.update(json.dumps([task.id, task.group, content], sort_keys=True).encode("utf-8") + b"\n")
    return digest.hexdigest()


@lru_cache(maxsize=8)
def definition(task_set: str) -> Definition:
    """Read a task_set's definition. Raises ConfigError where it is unknown, malformed, or its seeds overlap."""
    defined = read_definition(Definition, ENV, task_set, "the published games, " + ", ".join(OFFICIAL))
    _check(defined, definition_path(ENV, task_set))
    return defined


def _check(defined: Definition, path: Path) -> None:
    for name, asked in defined.splits.items():
        unknown = sorted(set(asked.counts) - set(defined.groups))
        if unknown:
            raise ConfigError(f"{path}: splits.{name}.counts names unknown groups {', '.join(unknown)}")
    ranges = sorted(((defined.seeds(split), split) for split in defined.splits), key=lambda x: x[0].start)
    ends = [*((r.start, name) for r, name in ranges[1:]), (defined.sft_first_seed, "sft")]
    for (seeds, split), (following, other) in zip(ranges, ends, strict=True):
        if seeds.stop > following:
            raise ConfigError(f"{path}: the seeds of {split} ({seeds}) reach into those of {other} ({following}..)")


def regenerate(defined: Definition, split: str) -> list[Task]:
    """The houses of a split, made anew from its seeds."""
    if split not in defined.splits:
        known = ", ".join(f"{defined.name}/{name}" for name in defined.splits)
        raise ConfigError(f"ALFWorld task set {defined.name} has no split {split!r}; it has {known}")
    seeds = iter(defined.seeds(split))
    found = [
        _task(defined, group, index, next(seeds), split)
        for group, count in defined.splits[split].counts.items()
        for index in range(count)
    ]
    return sorted(found, key=lambda task: task.id)


def _task(defined: Definition, name: str, index: int, seed: int, split: str) -> Task:
    group = defined.groups[name]
    family = group.families[index % len(group.families)]
    return generate(family, seed, group.receptacles, group.objects, split, name)


def official(split: str) -> str:
    """``split``. Raises ConfigError unless it is one of the published games'."""
    if split not in OFFICIAL:
        raise ConfigError(
            f"ALFWorld task set {split!r} is unknown; published games: {', '.join(OFFICIAL)}; houses: NAME/SPLIT"
        )
    return split
