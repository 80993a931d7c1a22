"""manifest.json: what names and repeats a run: configuration, task sets, versions, hardware, commit, plan."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from r3l.config import Run, base_checkpoint_warning, environment_of, trains, validate
from r3l.config.run import SCHEMA_VERSION
from r3l.core.errors import DataError
from r3l.files.json_files import read_json
from r3l.files.shapes import Recorded, check_whole
from r3l.runs.provenance import commit, preregistration_sha256
from r3l.runs.run_dir import MANIFEST

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


def manifest(run: Run) -> dict[str, Any]:
    """The content of manifest.json."""
    inputs, settings = run.inputs(), run.env_settings
    # Training tasks are not loaded where nothing trains: those of published sets need a download.
    task_sets = {"train": settings.train_task_set} if trains(run) else {}
    task_sets |= {"test": settings.test_task_set}
    return {
        "schema": SCHEMA_VERSION,
        "run": run.model_dump(mode="json"),
        "inputs": inputs,
        "fingerprint": run.fingerprint(inputs),
        "task_set": {part: describe_task_set(run.env, name) for part, name in task_sets.items()},
        "versions": versions(),
        "hardware": hardware(),
        "commit": commit(),
        "preregistration_sha256": preregistration_sha256(),
        **({"start_model_warning": warning} if (warning := base_checkpoint_warning(run)) else {}),
    }


def run_of(run_dir: Path) -> Run:
    """The run that a directory holds, as its manifest has it."""
    path = run_dir / MANIFEST
    manifest = read_json(path, Recorded)
    if manifest.get("schema") != SCHEMA_VERSION:
        raise DataError(
            f"{path} is of another version of r3l (schema {manifest.get('schema')}, now {SCHEMA_VERSION}), whose "
            "results are not comparable: use that version, or rename the directory and run it again"
        )
    check_whole(path, manifest)
    return validate(Run, manifest["run"], str(path))


def describe_task_set(env: str, task_set: str) -> dict[str, Any]:
    """Name, size and committed hash of a task set; loading its tasks checks that they have that hash.

    ``warning``, where there is one, says what a reader of its scores must know, ``constant_answer_baseline`` what the
    best constant answer scores; tables show both.
    """
    environment = environment_of(env)
    baseline = environment.constant_answer(task_set)
    notes = {
        "warning": environment.warning(task_set),
        "constant_answer_baseline": asdict(baseline) if baseline else None,
    }
    return {
        "name": task_set,
        "sha256": environment.task_set_hash(task_set),
        "tasks": len(environment.tasks(task_set)),
        **{key: note for key, note in notes.items() if note},
    }


def versions() -> dict[str, str]:
    """Installed versions of what can change a result."""
    return {"python": platform.python_version()} | {package: _version(package) for package in PACKAGES}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def hardware() -> dict[str, Any]:
    """The class of machine: results are compared across classes, never silently mixed."""
    import torch

    return {
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "gpu": torch.cuda.get_device_name(0) if torch.cuda.is_available() else None,
    }
