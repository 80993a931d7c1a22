"""Training and evaluating a run. Imports are inside the functions, since torch takes a second to import."""

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
    from r3l.evaluation.episodes import Evaluation
    from r3l.evaluation.served_model import ServedModel
    from r3l.runs.loggers import Log
    from r3l.runs.result import Result

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
    """Train one run, or resume it, as `r3l train` does; returns its directory. A finished run stays as it is.

    ``method`` may be a variant (``"r3l@alpha=5"``), ``model`` a stored model, a folder or a hub id.
    ``settings`` override single values by their dotted names, such as ``{"train.steps": 3}``
    (docs/compare.md). ``run_dir`` is ``results/TIER/ENV/MODEL/METHOD/seedN`` by default.

    Raises an R3LError (r3l.core.errors), whose text says what is wrong and how to fix it: ConfigError for
    an unknown name or value and for missing packages, RunDirectoryError for a directory that another
    process uses.
    """
    from r3l.config import resolve

    _check_guarded()
    # Values as YAML, the form of --set on the command line.
    overrides: list[str] = []
    for key, value in (settings or {}).items():
        text = value if isinstance(value, str) else json.dumps(value)
        overrides.append(f"{key}={text}")
    run = resolve(tier, env, method, seed, model, overrides)
    where = default_run_dir(run) if run_dir is None else Path(run_dir)
    train_run(run, where)
    return where


def evaluate(run_dir: Path | str, task_set: str | None = None) -> Evaluation:
    """Play the test tasks with a run's last checkpoint, as `r3l evaluate RUN_DIR` does.

    Writes evaluation.json there, and returns its content: ``["groups"]["all"]["success"]`` is the share of
    tasks that were solved. ``task_set`` replaces the run's own test task set; its files go into a folder of
    their own. Episodes that were played before are not played again. Raises DataError if there is no such run
    or its files are damaged, ConfigError for an unknown task set and for missing packages, and
    RunDirectoryError if another process uses the directory.
    """
    _check_guarded()
    return evaluate_run(Path(run_dir), task_set)


def default_run_dir(run: Run) -> Path:
    """The path of a run's directory, ``results/TIER/ENV/MODEL/METHOD/seedN`` in the working directory.

    It need not exist.
    """
    return RESULTS / run.directory


def train_run(
    run: Run,
    where: Path,
    loggers: Sequence[str | Log] = (),
    minutes: float | None = None,
    set_aside: bool = False,
) -> Result:
    """Train a run in directory ``where``, or resume it; returns the content of result.json, which it writes.

    Uses the run's engine, or the local one if the method trains nothing. ``loggers``: names such as
    ``tensorboard``, or functions that get the metrics. ``minutes``: time limit, after which Preempted is
    raised; None: none. Waits for the GPUs that configs/resources.yaml requests. Downloads a hub's model.

    A directory whose run was made by an earlier version of the user's code is renamed first. A
    directory that holds another configuration is renamed if ``set_aside`` is true; otherwise it raises
    CheckpointError. Raises ConfigError for a served model, and if ``where`` is kept in git and the checkout
    has uncommitted changes; RunDirectoryError if another process uses ``where``.
    """
    from r3l.config import base_checkpoint_warning, trains
    from r3l.config.fingerprint_inputs import fetch
    from r3l.evaluation.curve import check_curve, record_point
    from r3l.runs.changed_code import set_aside_changed
    from r3l.runs.gpu_locks import reserved_gpus
    from r3l.runs.provenance import check_clean
    from r3l.runs.run_dir import locked, move_aside
    from r3l.workflow import resources

    if run.engine == "server":
        raise ConfigError(
            f"{run.cell}: a served model cannot be trained; r3l evaluate {run.env} --server URL --model NAME"
        )

    # Refuse before any work: uncommitted code in the store, or an unknown task set (in the fingerprint).
    if where.resolve().is_relative_to(STORED):
        check_clean(f"{where} is kept in git")
    check_curve(run)
    warning = base_checkpoint_warning(run)
    if warning:
        log.warning("%s", warning)
    fetch(run.model)
    fingerprint = run.fingerprint()

    # A directory of another run is renamed, never overwritten; one in use is an error.
    if set_aside and where.is_dir():
        with locked(where):
            aside = move_aside(where, fingerprint)
        if aside:
            log.warning("%s held another configuration; it is kept in %s", where, aside)
    set_aside_changed(where, run)

    # Jobs on several nodes, or on a Ray cluster, get their GPUs from a scheduler: nothing is reserved here.
    engine_name = run.engine if trains(run) else "local"
    engine = importlib.import_module(f"r3l.{engine_name}.engine")
    job = resources.requested_resources(resources.load(), "train", run)
    elsewhere = job.nodes > 1 or (engine_name == "trinity" and "RAY_ADDRESS" in os.environ)
    with reserved_gpus(0 if elsewhere else job.gpu):
        curve = {"after_update": record_point} if run.evaluation.curve else {}
        result: Result = engine.train(run, where, loggers, minutes, **curve)
    return result


def evaluate_run(
    run_dir: Path,
    task_set: str | None = None,
    served: ServedModel | None = None,
) -> Evaluation:
    """Evaluate a run with its last checkpoint, or the model behind a server, ``served``; waits for its GPU.

    ``task_set``: its name, by default the run's test task set. Writes evaluation.json and episodes.jsonl into
    ``run_dir``; for another task set, into a folder below it. Returns the content of evaluation.json. Raises
    DataError if there is no ``run_dir``, RunDirectoryError if another process uses it, and other errors of
    r3l.core.errors if run, model or tasks are not as recorded.
    """
    from r3l.evaluation import evaluate as evaluation
    from r3l.runs.gpu_locks import reserved_gpus
    from r3l.runs.manifest import run_of
    from r3l.workflow import resources

    check_run_dir(run_dir)
    run = run_of(run_dir)
    gpus = 0 if served else resources.requested_resources(resources.load(), "evaluate", run).gpu
    with reserved_gpus(gpus):
        return evaluation.evaluate_run(run_dir, task_set, served)


def check_run_dir(run_dir: Path) -> None:
    """Raise DataError if a run directory does not exist: evaluating would create it with its lock."""
    if not run_dir.is_dir():
        raise DataError(f"run directory {run_dir} does not exist; train first, or correct the path")


def _check_guarded() -> None:
    """Raises ConfigError in an environment's worker process, which imports the user's script again."""
    imported = sys.modules.get("__mp_main__")
    if imported is not None and imported is not sys.modules["__main__"]:
        raise ConfigError(
            f"{getattr(imported, '__file__', 'the script')} calls r3l where it is imported, and each "
            "environment's process imports it: put the calls under if __name__ == '__main__':"
        )
