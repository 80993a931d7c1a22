"""Optional copies of metrics.jsonl for other viewers: TensorBoard, W&B (offline), trackio.

Tables and figures read the file. A copy is written again from its first line whenever a command opens it, so that
resumed and repeated steps cannot be in it twice; training then adds each step.
"""

from __future__ import annotations

import importlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

from r3l.core.errors import ConfigError, check_known
from r3l.core.files import read_json, read_jsonl
from r3l.runs.run_dir import METRICS

PROJECT = "r3l"
Metrics = Mapping[str, float]
Log = Callable[[Metrics], None]  # one step's metrics, with "step" among them
Opener = Callable[[Path, Path, Mapping[str, Any]], AbstractContextManager[Log]]  # folder, run_dir, configuration


@contextmanager
def open_loggers(names: Sequence[str], run_dir: Path, config: Mapping[str, Any]) -> Iterator[Log]:
    """A function that gives each step's metrics to the loggers ``names``, which hold metrics.jsonl as it stands
    already.

    ``config`` is the run's, for viewers that show it; copies lie in ``run_dir``/<name>. Raises ConfigError for an
    unknown logger and one whose package is not installed.
    """
    with ExitStack() as stack:
        logs = [stack.enter_context(_opener(name)(_emptied(run_dir / name), run_dir, config)) for name in names]

        def log(metrics: Metrics) -> None:
            for write in logs:
                write(metrics)

        for line in read_jsonl(run_dir / METRICS) if logs else []:
            log(line)
        yield log


def export(run_dir: Path, names: Sequence[str]) -> None:
    """Make the copies of a run that is there. Raises DataError where it is none."""
    config = read_json(run_dir / "manifest.json")["run"]
    with open_loggers(names, run_dir, config):
        pass


def _opener(name: str) -> Opener:
    check_known("logger", name, LOGGERS)
    return LOGGERS[name]


def _emptied(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _package(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(f"logger {package!r} needs a package that is missing: pip install {package}") from error


@contextmanager
def _tensorboard(folder: Path, run_dir: Path, config: Mapping[str, Any]) -> Iterator[Log]:
    _package("tensorboard", "tensorboard")
    writer = _package("torch.utils.tensorboard", "tensorboard").SummaryWriter(str(folder))

    def log(metrics: Metrics) -> None:
        for key, value in metrics.items():
            writer.add_scalar(key, value, int(metrics["step"]))

    try:
        yield log
    finally:
        writer.close()


@contextmanager
def _wandb(folder: Path, run_dir: Path, config: Mapping[str, Any]) -> Iterator[Log]:
    run = _package("wandb", "wandb").init(
        project=PROJECT, name=_name(run_dir), dir=str(folder), config=dict(config), mode="offline"
    )
    try:
        yield lambda metrics: run.log(dict(metrics), step=int(metrics["step"]))
    finally:
        run.finish()


@contextmanager
def _trackio(folder: Path, run_dir: Path, config: Mapping[str, Any]) -> Iterator[Log]:
    os.environ["TRACKIO_DIR"] = str(folder)  # read when it is imported, so: one run a process
    run = _package("trackio", "trackio").init(project=PROJECT, name=_name(run_dir), config=dict(config), embed=False)
    try:
        yield lambda metrics: run.log(dict(metrics), step=int(metrics["step"]))
    finally:
        run.finish()


def _name(run_dir: Path) -> str:
    return "/".join(run_dir.resolve().parts[-5:])


LOGGERS: Mapping[str, Opener] = {"tensorboard": _tensorboard, "wandb": _wandb, "trackio": _trackio}
