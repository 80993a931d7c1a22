"""Training and evaluating a run. What they need is imported when they are called: torch takes a second."""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r3l.core.errors import ConfigError, DataError
from r3l.files.paths import RESULTS, STORED

if TYPE_CHECKING:
    from r3l.config import Run
    from r3l.evaluation.agents import ServedAgent

log = logging.getLogger(__name__)


def train(
    env: str,
    method: str,
    *,
    seed: int = 0,
    tier: str = "nano",
    model: str | None = None,
    settings: Mapping[str, Any] | None = None,
    run_dir: Path | str | None = None,
) -> Path:
    """Train one run, or resume it, as `r3l train` does; its directory. What is finished is not trained again.

    ``method`` may be a variant (``"r3l@alpha=5"``), ``model`` a stored model, a folder or a hub id. ``settings`` are
    changes of single values by their dotted names, such as ``{"train.steps": 3}`` (docs/configuration.md).
    ``run_dir`` is ``results/TIER/ENV/MODEL/METHOD/seedN`` unless another is given.

    Raises an R3LError (r3l.core.errors), whose text says what is wrong and how to fix it: ConfigError for an unknown
    name or value and for missing packages, RunDirectoryError for a directory that another process uses.
    """
    from r3l.config import resolve

    _check_guarded()
    run = resolve(tier, env, method, seed, model, _overrides(settings or {}))
    where = place_of(run) if run_dir is None else Path(run_dir)
    train_run(run, where)
    return where


def evaluate(run_dir: Path | str, task_set: str | None = None) -> dict[str, Any]:
    """Play the test tasks with a run's last checkpoint, as `r3l evaluate RUN_DIR` does; what evaluation.json holds.

    ``["groups"]["all"]["success"]`` is the share of tasks that were solved. ``task_set``: another one than the run's
    own test task set. Raises as :func:`train`, and DataError where there is no such run.
    """
    _check_guarded()
    return evaluate_run(Path(run_dir), task_set)


def place_of(run: Run) -> Path:
    """Where a run lies unless another directory is given."""
    return RESULTS / run.directory


def train_run(
    run: Run, where: Path, loggers: Sequence[str] = (), minutes: float | None = None, set_aside: bool = False
) -> dict[str, Any]:
    """Train by the run's engine; a method that trains nothing keeps the base checkpoint, by the local engine.

    A directory whose run was made by other code of the user's is renamed first; with ``set_aside`` any directory that
    holds another configuration. Raises ConfigError where files of the checkout differ from its commit and ``where`` is
    kept in git.
    """
    from r3l.config import base_checkpoint_warning, trains
    from r3l.config.fingerprint_inputs import fetch
    from r3l.evaluation.curve import check_curve, record_point
    from r3l.runs.changed_code import set_aside_changed
    from r3l.runs.gpu_locks import reserved_gpus
    from r3l.runs.provenance import check_clean
    from r3l.runs.run_dir import move_aside
    from r3l.workflow import resources

    if run.engine == "server":
        raise ConfigError(
            f"{run.cell}: a server plays and trains nothing; r3l evaluate {run.env} --server URL --model NAME"
        )
    if run.evaluation.curve:
        check_curve(run)
    if where.resolve().is_relative_to(STORED):
        check_clean(f"{where} is kept in git")
    if warning := base_checkpoint_warning(run):
        log.warning("%s", warning)
    fetch(run.model)
    fingerprint = run.fingerprint()  # an unknown task set is an error now, before there is a directory
    if set_aside and (aside := move_aside(where, fingerprint)):
        log.warning("%s held another configuration; it is kept in %s", where, aside)
    set_aside_changed(where, run)
    engine = importlib.import_module(f"r3l.{run.engine if trains(run) else 'local'}.engine")
    job = resources.requested_resources(resources.load(), "train", run)
    elsewhere = job.nodes > 1 or (engine.__name__ == "r3l.trinity.engine" and "RAY_ADDRESS" in os.environ)
    with reserved_gpus(0 if elsewhere else job.gpu):
        curve = {"after_update": record_point} if run.evaluation.curve else {}
        result: dict[str, Any] = engine.train(run, where, loggers, minutes, **curve)
    return result


def evaluate_run(run_dir: Path, task_set: str | None = None, agent: ServedAgent | None = None) -> dict[str, Any]:
    """Evaluate a run with its last checkpoint, or with ``agent``, a server that has it."""
    from r3l.evaluation import evaluate as evaluation
    from r3l.runs.gpu_locks import reserved_gpus
    from r3l.runs.manifest import run_of
    from r3l.workflow import resources

    check_run_dir(run_dir)
    run = run_of(run_dir)
    gpus = 0 if agent else resources.requested_resources(resources.load(), "evaluate", run).gpu
    with reserved_gpus(gpus):
        return evaluation.evaluate_run(run_dir, task_set, agent)


def check_run_dir(run_dir: Path) -> None:
    """Raises DataError for a directory that is not there: evaluating locks, and so creates, it."""
    if not run_dir.is_dir():
        raise DataError(f"run directory {run_dir} does not exist; train first, or correct the path")


def _check_guarded() -> None:
    """Raises ConfigError in an environment's worker, which imports the script that started it."""
    imported = sys.modules.get("__mp_main__")
    if imported is not None and imported is not sys.modules["__main__"]:
        raise ConfigError(
            f"{getattr(imported, '__file__', 'the script')} calls r3l where it is imported, and each environment's "
            "process imports it: put the calls under if __name__ == '__main__':"
        )


def _overrides(settings: Mapping[str, Any]) -> list[str]:
    """``key=value`` of each, the value in YAML."""
    return [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in settings.items()]
