"""What the environments' task sets share: definitions, and committed proofs that tasks are the same.

A definition (``configs/task_sets/<env>_NAME.yaml``) says which tasks; the committed file
(``envs/<env>/task_sets/NAME.json``) holds their count, ids and sha256, so that whoever regenerates them knows that
they are the same.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from r3l.core.errors import ConfigError, DataError
from r3l.core.task import Task
from r3l.files.names import is_folder_name
from r3l.files.paths import CONFIGS, ENVS
from r3l.files.writing import write_text_atomic
from r3l.files.yaml_files import read_yaml

DEFINITIONS = CONFIGS / "task_sets"


class Strict(BaseModel):
    """Base of what a definition is made of: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


DefinitionT = TypeVar("DefinitionT", bound=BaseModel)


def definition_path(env: str, name: str) -> Path:
    """Where a task set is defined."""
    return DEFINITIONS / f"{env}_{name}.yaml"


def read_definition(kind: type[DefinitionT], env: str, name: str, others: str) -> DefinitionT:
    """The definition of a task set. ``others`` names the task sets that need none, for the error.

    Raises ConfigError where it is unknown or malformed.
    """
    path = definition_path(env, name)
    if not is_folder_name(name) or not path.is_file():
        known = sorted(p.stem.removeprefix(f"{env}_") for p in DEFINITIONS.glob(f"{env}_*.yaml"))
        listed = ", ".join(f"{name}/SPLIT" for name in known)
        raise ConfigError(f"{env} task set {name!r} is unknown; in configs/task_sets: {listed}; beside them: {others}")
    try:
        return kind.model_validate(read_yaml(path))
    except ValidationError as error:
        raise ConfigError(f"{path}: {error}") from error


def name_and_split(env: str, task_set: str, splits_of: Callable[[str], Collection[str]]) -> tuple[str, str]:
    """The parts of ``NAME/SPLIT``; ``splits_of`` a name gives its splits. Raises ConfigError unless it is one."""
    name, slash, split = task_set.partition("/")
    if not slash:
        raise ConfigError(f"{env} task set {task_set!r} must look like NAME/SPLIT, e.g. nano/test")
    known = splits_of(name)
    if split not in known:
        raise ConfigError(f"{env} task set {name!r} has no split {split!r}; it has {', '.join(known)}")
    return name, split


def committed_path(env: str, name: str) -> Path:
    """Where the proof of a task set is committed."""
    return ENVS / env / "task_sets" / f"{name}.json"


def committed(env: str, name: str) -> dict[str, Any]:
    """The committed file of a task set. Raises DataError where it is missing or damaged."""
    path = committed_path(env, name)
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"{path} is missing or damaged ({error}). {_repair(env, name)}") from error


def split_hash(env: str, name: str, split: str) -> str:
    """The sha256 committed for a split. Raises DataError where there is none."""
    try:
        return str(committed(env, name)["splits"][split]["sha256"])
    except (KeyError, TypeError) as error:
        path = committed_path(env, name)
        raise DataError(f"{path} is damaged: no sha256 of split {split!r}. {_repair(env, name)}") from error


def check_hash(env: str, name: str, split: str, sha256: str) -> None:
    """Raise DataError unless ``sha256`` is the one committed for a split."""
    expected = split_hash(env, name, split)
    if sha256 != expected:
        raise DataError(
            f"{committed_path(env, name)}: split {split} has sha256 {expected}, but the tasks made from "
            f"{definition_path(env, name)} now have {sha256}. If the change is meant, run: {_build(env, name)}"
        )


def sha256_of(tasks: Iterable[Task]) -> str:
    """The hash of tasks, in any order: ids, groups and payloads."""
    lines = sorted(json.dumps([t.id, t.group, dict(t.payload)], sort_keys=True) for t in tasks)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def summary(tasks: Sequence[Task]) -> dict[str, Any]:
    """What is committed of a split: numbers of tasks and of each group, and the hash."""
    groups = dict(sorted(Counter(task.group for task in tasks).items()))
    return {"tasks": len(tasks), "groups": groups, "sha256": sha256_of(tasks)}


def commit(env: str, name: str, content: Mapping[str, Any]) -> Path:
    """Write the file to commit, whole or not at all; its path."""
    path = committed_path(env, name)
    write_text_atomic(path, json.dumps(content, indent=1) + "\n")
    return path


def _repair(env: str, name: str) -> str:
    return f"Restore it (git checkout), or run: {_build(env, name)}"


def _build(env: str, name: str) -> str:
    return f"r3l data build {name} --env {env}"
