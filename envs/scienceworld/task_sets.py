"""ScienceWorld's task sets: which problems results are measured on, committed as counts, ids and hashes.

``NAME/SPLIT`` of configs/task_sets/scienceworld_NAME.yaml are short problems with a stored solution; ``r3l/SPLIT`` and
``official/SPLIT`` are the selections of the paper's code and of ScienceWorld itself. No task set needs the simulator.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Literal

from pydantic import Field
from r3l.envs.base.task_sets import Strict, check_hash, definition_path, name_and_split, read_definition, split_hash
from r3l.envs.scienceworld.selection import SPLITS, VARIATIONS, official_variations, problem_of, select
from r3l.envs.scienceworld.solutions import solution, solved

from r3l.core.errors import ConfigError
from r3l.core.seeds import seed_of
from r3l.core.task import Task

ENV = "scienceworld"
OfficialSplit = Literal["train", "dev", "test"]


class Group(Strict):
    """A stratum of task types that results are reported by."""

    tasks: tuple[str, ...] = Field(min_length=1)


class Split(Strict):
    """``counts`` problems of each group, its task types taking turns, out of ScienceWorld's own splits ``from``.

    A split takes no problem of those before it in the definition.
    """

    source: tuple[OfficialSplit, ...] = Field(alias="from")
    counts: Mapping[str, int]


class Definition(Strict):
    """configs/task_sets/scienceworld_NAME.yaml.

    ``solve``: how many problems of each task type are solved, by official split. ``max_actions``: the longest
    solution that is let in.
    """

    name: str
    groups: Mapping[str, Group]
    solve: Mapping[OfficialSplit, int]
    max_actions: int = Field(ge=1)
    splits: Mapping[str, Split]
    sft_from: tuple[OfficialSplit, ...]
    sources: Mapping[str, str]


def tasks(task_set: str) -> list[Task]:
    """The problems of ``NAME/SPLIT``, sorted by id.

    Raises DataError where they are not those that were committed, ConfigError for an unknown task set or split.
    """
    name, split = name_and_split(ENV, task_set, _splits)
    problems = regenerate(name, split)
    check_hash(ENV, name, split, sha256_of(problems))
    return problems


def committed_hash(task_set: str) -> str:
    """The sha256 committed for ``NAME/SPLIT``; selects nothing."""
    name, split = name_and_split(ENV, task_set, _splits)
    return split_hash(ENV, name, split)


def sft_task(index: int, name: str = "nano") -> Task:
    """Problem ``index`` of those that start models are taught on, over and over; in no split of the task set."""
    if index < 0:
        raise ConfigError(f"SFT task {index}: indices start at 0")
    problems = _sft_tasks(name)
    return problems[index % len(problems)]


def sha256_of(tasks: Iterable[Task]) -> str:
    """A hash of ids, groups and payloads: of all that a problem is made of."""
    digest = hashlib.sha256()
    for task in sorted(tasks, key=lambda task: task.id):
        digest.update(json.dumps([task.id, task.group, dict(task.payload)], sort_keys=True).encode() + b"\n")
    return digest.hexdigest()


@lru_cache(maxsize=8)
def definition(name: str) -> Definition:
    """Read the definition of a task set. Raises ConfigError where it is unknown or malformed, or its splits overlap."""
    others = ", ".join(f"{key}/{split}" for key, splits in SPLITS.items() for split in splits)
    defined = read_definition(Definition, ENV, name, others)
    _check(defined, definition_path(ENV, name))
    return defined


def _check(defined: Definition, path: Path) -> None:
    for name, group in defined.groups.items():
        unknown = sorted(set(group.tasks) - set(VARIATIONS))
        if unknown:
            raise ConfigError(f"{path}: groups.{name}.tasks names unknown task types {', '.join(unknown)}")
    for name, split in defined.splits.items():
        unknown = sorted(set(split.counts) - set(defined.groups))
        if unknown:
            raise ConfigError(f"{path}: splits.{name}.counts names unknown groups {', '.join(unknown)}")
    if "test" not in defined.splits:
        return
    tested = set(defined.splits["test"].source)
    for name, split in defined.splits.items():
        if name != "test" and (both := tested & set(split.source)):
            raise ConfigError(f"{path}: splits {name} and test both draw from {min(both)!r}; separate them")
    if set(defined.sft_from) & tested:
        raise ConfigError(f"{path}: sft_from shares a split with splits.test; separate them")


def regenerate(name: str, split: str) -> list[Task]:
    """The problems that a split selects now, whatever was committed; sorted by id."""
    if name in SPLITS:
        return select(name, split)
    defined = definition(name)
    sources, problems = defined.splits[split].source, list[Task]()
    taken = _of_splits_before(name, split)
    for group, count in defined.splits[split].counts.items():
        candidates = [_candidates(defined, task_type, sources) for task_type in defined.groups[group].tasks]
        queues = [[key for key in of_type if key not in taken] for of_type in candidates]
        turns = [queue[k] for k in range(max(map(len, queues))) for queue in queues if k < len(queue)]
        if len(turns) < count:
            raise ConfigError(
                f"ScienceWorld task set {name}/{split}: {group} asks for {count} of {len(turns)} problems"
            )
        problems += [_with_solution(problem_id, split, group) for problem_id in turns[:count]]
    return sorted(problems, key=lambda task: task.id)


def _of_splits_before(name: str, split: str) -> set[str]:
    """Ids of the problems of the splits that stand before ``split`` in the definition."""
    splits = list(definition(name).splits)
    return {task.id for before in splits[: splits.index(split)] for task in regenerate(name, before)}


def _candidates(defined: Definition, task_type: str, sources: Sequence[str]) -> list[str]:
    """Ids of the type's problems out of ``sources`` that have a short enough solution."""
    ids = [key for source in sources for key in to_solve(defined, task_type, source)]
    return [key for key in ids if key in solved() and len(solution(key)) <= defined.max_actions]


def to_solve(defined: Definition, task_type: str, source: str) -> list[str]:
    """Ids of the problems of an official split that get a solution, in an order drawn by address."""
    ids = [f"{task_type}-{variation}" for variation in official_variations(task_type, source)]
    return sorted(ids, key=lambda key: seed_of("panel", defined.name, key))[: defined.solve.get(source, 0)]  # type: ignore[call-overload]


@lru_cache(maxsize=8)
def _sft_tasks(name: str) -> list[Task]:
    defined = definition(name)
    taken = {task.id for split in defined.splits for task in regenerate(name, split)}
    problems = [
        _with_solution(key, "sft", group)
        for group, members in defined.groups.items()
        for task_type in members.tasks
        for key in _candidates(defined, task_type, defined.sft_from)
        if key not in taken
    ]
    return sorted(problems, key=lambda task: seed_of("warmstart", name, task.id))


def _with_solution(problem_id: str, split: str, group: str) -> Task:
    task = problem_of(problem_id, split, group)
    return replace(task, payload={**task.payload, "solution": solution(problem_id)})


def _splits(name: str) -> Collection[str]:
    return SPLITS[name] if name in SPLITS else definition(name).splits
