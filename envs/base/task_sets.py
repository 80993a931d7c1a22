"""What the environments' task sets share: definitions in ``configs/task_sets``, and committed proofs that tasks are
the same.

A definition (``configs/task_sets/<env>_NAME.yaml``) says which tasks; the committed file
(``envs/<env>/task_sets/NAME.json``) holds their count, ids and sha256, so that whoever regenerates them knows that
they are the same.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from r3l.core.errors import ConfigError, DataError
from r3l.core.task import Task
from r3l.runs.files import write_text_atomic

HERE = Path(__file__).resolve().parent.parent
DEFINITIONS = HERE.parent / "configs" / "task_sets"


class Strict(BaseModel):
    """Base of what a definition is made of: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Kind = TypeVar("Kind", bound=BaseModel)


def definition_path(env: str, task_set: str) -> Path:
    """Where a task set is defined."""
    return DEFINITIONS / f"{env}_{task_set}.yaml"


def read_definition(kind: type[Kind], env: str, task_set: str, others: str) -> Kind:
    """A task_set's definition. ``others`` names the task sets that need none, for the error.

    Raises ConfigError where it is unknown or malformed.
    """
    path = definition_path(env, task_set)
    if not path.is_file():
        known = sorted(p.stem.removeprefix(f"{env}_") for p in DEFINITIONS.glob(f"{env}_*.yaml"))
        listed = ", ".join(f"{name}/SPLIT" for name in known)
        raise ConfigError(
            f"{env} task set {task_set!r} is unknown; in configs/task_sets: {listed}; beside them: {others}"
        )
    try:
        return kind.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (yaml.YAMLError, ValidationError) as error:
        raise ConfigError(f"{path}: {error}") from error


def committed_path(env: str, task_set: str) -> Path:
    """Where a task_set's proof is committed."""
    return HERE / env / "task_sets" / f"{task_set}.json"


def committed(env: str, task_set: str) -> dict[str, Any]:
    """The committed file of a task set. Raises DataError where it is missing or damaged."""
    path = committed_path(env, task_set)
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"{path} is missing or damaged ({error}). {_mend(env, task_set)}") from error


def split_hash(env: str, task_set: str, split: str) -> str:
    """The sha256 committed for a split. Raises DataError where there is none."""
    try:
        return str(committed(env, task_set)["splits"][split]["sha256"])
    except (KeyError, TypeError) as error:
        path = committed_path(env, task_set)
        raise DataError(f"{path} is damaged: no sha256 of split {split!r}. {_mend(env, task_set)}") from error


def check(env: str, task_set: str, split: str, found: str) -> None:
    """Raise DataError unless ``found`` is the sha256 committed for a split."""
    expected = split_hash(env, task_set, split)
    if found != expected:
        raise DataError(
            f"{committed_path(env, task_set)}: split {split} has sha256 {expected}, but the tasks made from "
            f"{definition_path(env, task_set)} now have {found}. If the change is meant, run: {_build(env, task_set)}"
        )


def sha256_of(found: Iterable[Task]) -> str:
    """The hash of a list of tasks, in any order: ids, groups and payloads."""
    lines = sorted(json.dumps([t.id, t.group, dict(t.payload)], sort_keys=True) for t in found)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def summary(found: Sequence[Task]) -> dict[str, Any]:
    """What is committed of a split: numbers of tasks and of each group, and the hash."""
    groups = dict(sorted(Counter(task.group for task in found).items()))
    return {"tasks": len(found), "groups": groups, "sha256": sha256_of(found)}


def commit(env: str, task_set: str, content: Mapping[str, Any]) -> Path:
    """Write the file to commit, whole or not at all; its path."""
    path = committed_path(env, task_set)
    write_text_atomic(path, json.dumps(content, indent=1) + "\n")
    return path


def _mend(env: str, task_set: str) -> str:
    return f"Restore it (git checkout), or run: {_build(env, task_set)}"


def _build(env: str, task_set: str) -> str:
    return f"r3l task-set build {task_set} --env {env}"
