"""Optional copies of metrics.jsonl for other viewers: TensorBoard, W&B (offline), trackio.

All runs of a tier are one project there (``r3l-nano``), named by environment, model, method and seed; the seeds of a
cell are a group. TensorBoard knows no projects: ``--logdir results`` shows all runs.

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
from r3l.files.json_files import read_json, read_jsonl
from r3l.runs.run_dir import METRICS

Metrics = Mapping[str, float]
Log = Callable[[Metrics], None]  # one step's metrics, with "step" among them
Opener = Callable[[Path, Mapping[str, Any]], AbstractContextManager[Log]]  # folder, configuration


@contextmanager
def open_loggers(names: Sequence[str], run_dir: Path, config: Mapping[str, Any]) -> Iterator[Log]:
    """A function that gives each step's metrics to the loggers ``names``, which hold metrics.jsonl as it stands
    already.

    ``config`` is the run's (r3l.config.Run, dumped); copies lie where :func:`place` says. Raises ConfigError for an
    unknown logger and one whose package is not installed.
    """
    with ExitStack() as stack:
        logs = [stack.enter_context(_opener(name)(place(name, run_dir, config), config)) for name in names]

        def log(metrics: Metrics) -> None:
            for write in logs:
                write(metrics)

        for line in read_jsonl(run_dir / METRICS) if logs else []:
            log(line)
        yield log


def export(run_dir: Path, names: Sequence[str]) -> list[Path]:
    """Make the copies of a run that is there; where they lie. Raises DataError where it is none."""
    config = read_json(run_dir / "manifest.json")["run"]
    with open_loggers(names, run_dir, config):
        return [place(name, run_dir, config) for name in names]


def place(name: str, run_dir: Path, config: Mapping[str, Any]) -> Path:
    """Where the logger ``name`` keeps a run: in its directory; trackio, a file a project, beside the tiers."""
    shared = name == "trackio" and run_dir.resolve().parts[-5:] == (config["tier"], *_name(config).split("/"))
    return run_dir.resolve().parents[4] / name if shared else run_dir / name


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
def _tensorboard(folder: Path, config: Mapping[str, Any]) -> Iterator[Log]:
    _package("tensorboard", "tensorboard")
    writer = _package("torch.utils.tensorboard", "tensorboard").SummaryWriter(str(_emptied(folder)))

    def log(metrics: Metrics) -> None:
        for key, value in metrics.items():
            writer.add_scalar(key, value, int(metrics["step"]))

    try:
        yield log
    finally:
        writer.close()


@contextmanager
def _wandb(folder: Path, config: Mapping[str, Any]) -> Iterator[Log]:
    name = _name(config)
    run = _package("wandb", "wandb").init(
        project=_project(config),
        group=_group(config),
        name=name,
        id=name.replace("/", "-"),  # synchronised again it is the same run, not another one
        dir=str(_emptied(folder)),
        config=dict(config),
        mode="offline",
    )
    try:
        yield lambda metrics: run.log(dict(metrics), step=int(metrics["step"]))
    finally:
        run.finish()


@contextmanager
def _trackio(folder: Path, config: Mapping[str, Any]) -> Iterator[Log]:
    os.environ["TRACKIO_DIR"] = str(folder.resolve())  # read when it is imported, so: one folder a process
    trackio, project, name = _package("trackio", "trackio"), _project(config), _name(config)
    if (folder / f"{project}.db").is_file():
        for earlier in trackio.Api().runs(project):
            if earlier.name == name:
                earlier.delete()
    run = trackio.init(project=project, group=_group(config), name=name, config=dict(config), embed=False)
    try:
        yield lambda metrics: run.log({k: v for k, v in metrics.items() if k != "step"}, step=int(metrics["step"]))
    finally:
        run.finish()


def _project(config: Mapping[str, Any]) -> str:
    return f"r3l-{config['tier']}"


def _group(config: Mapping[str, Any]) -> str:
    """The cell: what the seeds of a run share."""
    return "/".join([config["env"], Path(config["model"]).name, config["method"].replace("/", "-")])


def _name(config: Mapping[str, Any]) -> str:
    return f"{_group(config)}/seed{config['seed']}"


LOGGERS: Mapping[str, Opener] = {"tensorboard": _tensorboard, "wandb": _wandb, "trackio": _trackio}
