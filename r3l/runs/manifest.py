"""manifest.json: configuration, task sets, versions, hardware, commit and pre-registration of a run."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, cast

from pydantic import AfterValidator
from typing_extensions import TypedDict

from r3l.config import Run, base_checkpoint_warning, environment_of, own_folders, trains, validate
from r3l.config.files import OWN
from r3l.config.run import SCHEMA_VERSION
from r3l.config.user_code import UserCode
from r3l.core.errors import DataError
from r3l.envs.base.package import split_and_group
from r3l.files.json_files import Number, checked, read_json
from r3l.runs.provenance import commit, preregistration_sha256
from r3l.runs.run_dir import MANIFEST, RecordedRun

PACKAGES = (
    "torch",
    "transformers",
    "tokenizers",
    "numpy",
    "numba",
    "peft",
    "alfworld",
    "textworld",
    "fast-downward-textworld",
)


def with_all(groups: dict[str, Any]) -> dict[str, Any]:
    """Check that ``groups``, scores by group of tasks, has the group "all"; returns it unchanged.

    Raises ValueError if it does not.
    """
    if "all" not in groups:
        raise ValueError("the group 'all' is missing")
    return groups


class ConstantAnswerScore(TypedDict):
    """The constant answer that solves most tasks of a task set, and its success in [0, 1] by task group."""

    answer: str
    success: Annotated[dict[str, Number], AfterValidator(with_all)]


class TaskSetSummary(TypedDict):
    """A task set as a manifest or an evaluation names it. ``tasks``: the number of its tasks.

    ``sha256``: the committed hash of all tasks. ``warning``: what a reader of its scores must know.
    """

    name: str
    sha256: str
    tasks: int
    warning: NotRequired[str]  # what a reader of its scores must know
    constant_answer_baseline: NotRequired[ConstantAnswerScore]


class TaskSetsOfRun(TypedDict):
    """The task sets that a run trains and is tested on; ``train`` is missing if nothing trains."""

    train: NotRequired[TaskSetSummary]
    test: TaskSetSummary


class TrainSettings(TypedDict):
    """The training settings that reports read: learning rate, and number of tasks per step."""

    lr: NotRequired[Number]
    tasks_per_step: NotRequired[int]


class SavedMethodSettings(TypedDict):
    """The settings of a method that reports read.

    ``feedback``: who writes it: ``self`` (the policy), ``environment`` (its critic) or ``judge``.
    ``feedback_corruption``: share of the critic's reflections that are wrong. ``retries``: 0 if it has none.
    """

    feedback: NotRequired[Literal["self", "environment", "judge"]]
    feedback_corruption: NotRequired[Number]
    retries: NotRequired[Any]


class RunSettings(TypedDict):
    """The settings of a run that reports read, unchecked; :class:`Run` checks all settings of a run."""

    profile: str
    method_settings: SavedMethodSettings
    env_settings: dict[str, Any]
    train: NotRequired[TrainSettings]
    sampling: NotRequired[dict[str, Any]]
    evaluation: NotRequired[dict[str, Any]]
    judge: NotRequired[dict[str, Any]]
    lora: NotRequired[dict[str, Any]]
    own_code: NotRequired[UserCode]


class Manifest(RecordedRun):
    """The content of a run's manifest.json: what was run (settings, inputs, task sets) and with what.

    ``inputs`` and ``run`` decide the fingerprint; versions, hardware and commit only explain differences.
    ``agent``: the model server, if one played. ``own_folders``: R3L_ENVS and R3L_METHODS, where the user's
    code was. ``start_model_warning``: as :func:`r3l.config.base_checkpoint.base_checkpoint_warning` gives it.
    """

    run: RunSettings
    inputs: dict[str, Any]
    task_set: TaskSetsOfRun
    versions: dict[str, Any]
    hardware: dict[str, Any]
    commit: str | None
    preregistration_sha256: NotRequired[str | None]
    start_model_warning: NotRequired[str]
    agent: NotRequired[dict[str, Any]]
    own_folders: NotRequired[dict[str, str]]


def manifest(run: Run) -> Manifest:
    """The manifest of a run that begins now; nothing is written.

    Loads the task sets, those for training only if the run trains, which checks their hashes.
    """
    inputs = run.inputs()
    settings = run.env_settings
    # Training tasks of published sets need a download: they are loaded only if something trains.
    task_sets: TaskSetsOfRun = {"test": describe_task_set(run.env, settings.test_task_set)}
    if trains(run):
        task_sets["train"] = describe_task_set(run.env, settings.train_task_set)

    # Only configuration, inputs and schema decide the fingerprint; versions, hardware and commit explain
    # differences.
    content: Manifest = {
        "schema": SCHEMA_VERSION,
        "run": cast(RunSettings, run.model_dump(mode="json")),
        "inputs": inputs,
        "fingerprint": run.fingerprint(inputs),
        "task_set": task_sets,
        "versions": versions(),
        "hardware": hardware(),
        "commit": commit(),
        "preregistration_sha256": preregistration_sha256(),
    }
    if warning := base_checkpoint_warning(run):
        content["start_model_warning"] = warning
    if run.own_code:  # for messages where the variables are not set; code is never imported from here
        content["own_folders"] = {
            OWN[kind]: os.pathsep.join(map(str, own_folders(kind))) for kind in run.own_code
        }
    return content


def read_manifest(run_dir: Path, content: bytes | None = None) -> Manifest:
    """The manifest of a run; ``content``: the file's bytes, if the caller has read them.

    Raises DataError if it is missing or damaged, or if a version of r3l with another schema wrote it.
    """
    path = run_dir / MANIFEST
    recorded = read_json(path, dict[str, Any], content)
    # The schema first: a manifest of another version may lack the keys of this one, but has a fingerprint.
    if "fingerprint" in recorded and recorded.get("schema") != SCHEMA_VERSION:
        raise DataError(
            f"{path} is of another version of r3l (schema {recorded.get('schema')}, now {SCHEMA_VERSION}), "
            "whose results are not comparable: use that version, or rename the directory and run it again"
        )
    found: Manifest = checked(recorded, Manifest, str(path))
    return found


def run_of(run_dir: Path) -> Run:
    """The run of a directory, from its manifest.

    Raises DataError if the manifest is missing, damaged or of another version of r3l, ConfigError if its
    settings are not a run's.
    """
    return validate(Run, read_manifest(run_dir)["run"], str(run_dir / MANIFEST))


def describe_task_set(env: str, task_set: str) -> TaskSetSummary:
    """Name, number of tasks and committed hash of a task set, with its warning and best constant answer.

    ``task_set``: SPLIT, or SPLIT/GROUP for one group of its tasks. A group's constant answer is the one that
    is best on the complete split; its success rate on the group is given twice, by the group's name and as
    "all". Raises ConfigError for an unknown task set, DataError if its tasks do not have the committed hash.
    """
    environment = environment_of(env)
    split, group = split_and_group(task_set)
    summary: TaskSetSummary = {
        "name": task_set,
        "sha256": environment.task_set_hash(task_set),
        "tasks": len(environment.tasks(task_set)),
    }
    if warning := environment.warning(split):
        summary["warning"] = warning
    if baseline := environment.constant_answer(split):
        if group is not None:  # the best answer to all tasks, and its success on this group
            (name,) = (name for name in baseline.success if name.replace(" ", "_") == group)
            baseline = replace(baseline, success=dict.fromkeys((name, "all"), baseline.success[name]))
        summary["constant_answer_baseline"] = cast(ConstantAnswerScore, asdict(baseline))
    return summary


def versions() -> dict[str, str]:
    """Versions of Python and of PACKAGES, which can change a result; ``not installed`` for a missing one."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def hardware() -> dict[str, Any]:
    """This machine: ``machine`` (such as x86_64), ``vectors`` (the CPU instructions that torch uses, such as
    AVX2 or AVX512), ``cpus`` (number), ``gpu`` (name of the first, or None).

    Reports say so if runs of several machines are compared.
    """
    import torch

    return {
        "machine": platform.machine(),
        # Sums over wider vectors round otherwise, which can change every later token of a run.
        "vectors": torch.backends.cpu.get_cpu_capability(),
        "cpus": os.cpu_count(),
        "gpu": torch.cuda.get_device_name(0) if torch.cuda.is_available() else None,
    }
