"""Task sets: the tasks that results are measured on. Committed hashes prove that they are equal everywhere.

A definition (``configs/task_sets/<env>_NAME.yaml``) describes the tasks; the committed file
(``envs/<env>/task_sets/NAME.json``) has their count, ids and sha256, so that regenerated tasks can be
compared with it. The module ``tasks`` of an environment generates and validates them.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from r3l.core.errors import ConfigError, DataError
from r3l.core.task import Task
from r3l.core.text import shown
from r3l.files.names import is_folder_name
from r3l.files.paths import CONFIGS, ENVS
from r3l.files.writing import write_text_atomic
from r3l.files.yaml_files import read_yaml
from r3l.processes.progress import tracked

MOST = 100_000  # tasks of a drawn set, since all are kept in memory and hashed; our choice
DEFINITIONS = CONFIGS / "task_sets"


class DefinitionModel(BaseModel):
    """Base of the parts of a definition: an unknown key is a ValidationError, and objects are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class TaskSetDefinition(DefinitionModel):
    """Contents of configs/task_sets/<env>_NAME.yaml.

    ``splits``: settings of each split, in the order in which tasks are assigned to them. ``sources``: where
    the settings come from, by key.
    """

    name: str
    splits: Mapping[str, Any]
    sources: Mapping[str, str]


DefinitionT = TypeVar("DefinitionT", bound=TaskSetDefinition)


class TaskSets(ABC):
    """The task sets of an environment; names are like ``nano/test``."""

    @abstractmethod
    def tasks(self, task_set: str) -> list[Task]:
        """The tasks of a task set, sorted by id.

        Raises ConfigError for an unknown task set, DataError if the tasks' sha256 is not the committed one.
        """

    @abstractmethod
    def committed_hash(self, task_set: str) -> str:
        """The sha256 of a task set: read from its committed file, or without one, of tasks generated now.

        Raises ConfigError for an unknown task set, DataError if the committed file is damaged.
        """

    @abstractmethod
    def build(self, name: str) -> Path:
        """Generate the task set ``name``, validate every task, and write its committed file.

        Returns its path. Raises ConfigError for a task set without such a file, DataError for a task that
        cannot be solved.
        """


@dataclass(frozen=True)
class DrawnTaskSets(TaskSets):
    """Task sets that are generated and have no committed file.

    ``draw(split, number)`` makes a task. ``sizes``: number of tasks by split. If it is not 1 to MOST,
    :meth:`tasks` raises ConfigError for that split.
    """

    env: str
    sizes: Mapping[str, int]
    draw: Callable[[str, int], Task]

    def tasks(self, task_set: str) -> list[Task]:
        """Draw all tasks of a split, in the order of their ids.

        Raises ConfigError for an unknown split or a wrong size.
        """
        if task_set not in self.sizes:
            raise ConfigError(f"{self.env} task set {task_set!r} is unknown; it has {', '.join(self.sizes)}")
        size = self.sizes[task_set]
        if not isinstance(size, int) or not 0 < size <= MOST:
            raise ConfigError(
                f"{self.env} task set {task_set!r} has {shown(size)} tasks; give it 1 to {MOST:,}",
            )
        return in_id_order(self.draw(task_set, k) for k in range(size))

    def committed_hash(self, task_set: str) -> str:
        """The sha256 of the tasks as drawn by the current code. Raises ConfigError as :meth:`tasks` does."""
        return tasks_sha256(self.tasks(task_set))

    def build(self, name: str) -> Path:
        """Raises ConfigError: such task sets have no committed file."""
        raise ConfigError(f"the tasks of {self.env} are made by its code, so there is no task set to build")


class DefinedTaskSets(TaskSets, Generic[DefinitionT]):
    """Task sets defined by files of configs/task_sets.

    ``others``: further task sets without such a file, such as published ones, with their splits. An
    environment that cannot generate these itself also overrides ``tasks`` and ``committed_hash``.
    """

    env: str
    definition_type: type[DefinitionT]
    others: Mapping[str, Collection[str]] = {}

    @abstractmethod
    def regenerate(self, name: str, split: str) -> list[Task]:
        """Generate the tasks of a split, sorted by id, without comparing them with the committed hash."""

    @abstractmethod
    def spare_task(self, name: str, index: int) -> Task:
        """Task ``index`` (any number >= 0) for the supervised stage (SFT) of task set ``name``.

        It resembles the tasks of that set, but is in none of its splits.
        """

    @abstractmethod
    def validate(self, task: Task) -> None:
        """Raise DataError unless ``task`` can be solved."""

    def summary(self, tasks: Sequence[Task]) -> dict[str, Any]:
        """The committed file's entry of a split: number of ``tasks``, number by group, and sha256.

        A subclass may give other keys, but ``sha256`` is needed.
        """
        groups = dict(sorted(Counter(task.group for task in tasks).items()))
        return {"tasks": len(tasks), "groups": groups, "sha256": self.sha256(tasks)}

    def sha256(self, tasks: Iterable[Task]) -> str:
        """Hex sha256 of ``tasks``, to be compared with the hash in the committed file."""
        return tasks_sha256(tasks)

    def about(self, name: str) -> dict[str, Any]:
        """Further entries of the committed file of a task set, next to its splits."""
        return {}

    def definition(self, name: str) -> DefinitionT:
        """Read the definition of a task set. Raises ConfigError if it is unknown or malformed."""
        others = []
        for other, splits in self.others.items():
            others += [f"{other}/{split}" if split else other for split in splits]
        listed = ", ".join(others) or "none"
        found: DefinitionT = read_definition(self.definition_type, self.env, name, listed)
        return found

    def splits(self, name: str) -> Collection[str]:
        """Names of a task set's splits. Raises ConfigError for an unknown task set."""
        return self.others[name] if name in self.others else self.definition(name).splits

    def parts(self, task_set: str) -> tuple[str, str]:
        """Split ``NAME/SPLIT`` into its parts. Raises ConfigError for another form or an unknown split."""
        name, slash, split = task_set.partition("/")
        if not slash:
            raise ConfigError(f"{self.env} task set {task_set!r} must look like NAME/SPLIT, e.g. nano/test")
        if split not in self.splits(name):
            known = ", ".join(self.splits(name))
            raise ConfigError(f"{self.env} task set {name!r} has no split {split!r}; it has {known}")
        return name, split

    def tasks(self, task_set: str) -> list[Task]:
        """Generate the tasks of ``NAME/SPLIT`` and compare their sha256 with the committed one.

        Raises ConfigError for an unknown task set, DataError if they differ or the file is damaged.
        """
        name, split = self.parts(task_set)
        tasks = self.regenerate(name, split)
        expected = split_hash(self.env, name, split)
        found = self.sha256(tasks)
        if found != expected:
            raise DataError(
                f"{committed_path(self.env, name)}: split {split} has sha256 {expected}, but the tasks made "
                f"from {definition_path(self.env, name)} now have {found}. If the change is intended, run: "
                f"{_build_command(self.env, name)}"
            )
        return tasks

    def committed_hash(self, task_set: str) -> str:
        """The sha256 of ``NAME/SPLIT`` in its committed file; no task is generated.

        Raises ConfigError for an unknown task set, DataError if the file is missing or damaged.
        """
        return split_hash(self.env, *self.parts(task_set))

    def build(self, name: str) -> Path:
        """Generate and validate all splits of a task set, and write its committed file; returns its path."""
        splits: dict[str, Any] = {}
        for split in self.splits(name):
            tasks = self.regenerate(name, split)
            for task in tracked(tasks, f"validating {name}/{split}"):
                self.validate(task)
            splits[split] = self.summary(tasks)
        path = committed_path(self.env, name)
        content = {"task_set": name, **self.about(name), "splits": splits}
        write_text_atomic(path, json.dumps(content, indent=1) + "\n")
        return path


def definition_path(env: str, name: str) -> Path:
    """The path of a task set's definition; the file need not exist."""
    return DEFINITIONS / f"{env}_{name}.yaml"


@lru_cache(maxsize=32)
def read_definition(kind: type[DefinitionT], env: str, name: str, others: str) -> DefinitionT:
    """The definition of task set ``name``, read from configs/task_sets/ENV_NAME.yaml as a ``kind``; cached.

    Raises ConfigError if the file is missing or malformed. ``others``: the names of the environment's task
    sets that need no such file, which the message for a missing file lists too.
    """
    path = definition_path(env, name)
    if not is_folder_name(name) or not path.is_file():
        known = sorted(p.stem.removeprefix(f"{env}_") for p in DEFINITIONS.glob(f"{env}_*.yaml"))
        listed = ", ".join(f"{name}/SPLIT" for name in known)
        raise ConfigError(
            f"{env} task set {name!r} is unknown; in configs/task_sets: {listed}; others: {others}",
        )
    try:
        return kind.model_validate(read_yaml(path))
    except ValidationError as error:
        raise ConfigError(f"{path}: {error}") from error


def committed_path(env: str, name: str) -> Path:
    """The path of a task set's committed file, envs/ENV/task_sets/NAME.json; it need not exist."""
    return ENVS / env / "task_sets" / f"{name}.json"


def committed(env: str, name: str) -> dict[str, Any]:
    """Read the committed file of a task set. Raises DataError if it is missing or damaged."""
    path = committed_path(env, name)
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        repair = f"Restore it (git checkout), or run: {_build_command(env, name)}"
        raise DataError(f"{path} is missing or damaged ({error}). {repair}") from error


def split_hash(env: str, name: str, split: str) -> str:
    """The sha256 of a split in the committed file of task set ``name``. Raises DataError if it is missing."""
    try:
        return str(committed(env, name)["splits"][split]["sha256"])
    except (KeyError, TypeError) as error:
        path = committed_path(env, name)
        repair = f"Restore it (git checkout), or run: {_build_command(env, name)}"
        raise DataError(f"{path} is damaged: no sha256 of split {split!r}. {repair}") from error


def tasks_sha256(tasks: Iterable[Task]) -> str:
    """Hex sha256 of the ids, groups and payloads of tasks; their order does not matter."""
    lines = sorted(json.dumps([t.id, t.group, dict(t.payload)], sort_keys=True) for t in tasks)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def in_id_order(tasks: Iterable[Task]) -> list[Task]:
    """A new list of ``tasks``, sorted by id."""
    return sorted(tasks, key=lambda task: task.id)


def _build_command(env: str, name: str) -> str:
    return f"r3l data build {name} --env {env}"
