"""Optional copies of metrics.jsonl for other viewers: TensorBoard, and W&B (offline).

In W&B all runs of a tier are one project (``r3l-nano``), named by environment, model, method and seed; the
seeds of a cell are a group. A run's id in W&B is its fingerprint: synchronising a resumed run updates it, and
a run with another setting is a new one. TensorBoard has no projects: ``--logdir results`` shows all runs.

Tables and figures read metrics.jsonl itself. A copy is written again from its first line whenever a command
opens it, so that resumed and repeated steps cannot be in it twice; training then adds each step.
"""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

from r3l.core.errors import ConfigError, check_known
from r3l.files.json_files import read_json
from r3l.runs.manifest import Manifest
from r3l.runs.run_dir import MANIFEST
from r3l.runs.step_metrics import read_metrics

Metrics = Mapping[str, float]
Log = Callable[[Metrics], None]  # takes the metrics of one step, "step" included


@contextmanager
def open_loggers(loggers: Sequence[str | Log], run_dir: Path) -> Iterator[Log]:
    """Open ``loggers``, and yield a function that logs a further step to all of them.

    A logger is a name (``tensorboard``, ``wandb``), whose folder in ``run_dir`` is deleted and written again
    from the steps in metrics.jsonl; or a function, which gets further steps only. Raises ConfigError for an
    unknown name and a package that is not installed, DataError if metrics.jsonl is damaged.
    """
    with ExitStack() as stack:
        functions = [logger for logger in loggers if not isinstance(logger, str)]
        named = []
        for name in (logger for logger in loggers if isinstance(logger, str)):
            check_known("logger", name, LOGGERS)
            # Begin the copy again: steps after the last checkpoint are run a second time.
            shutil.rmtree(run_dir / name, ignore_errors=True)
            (run_dir / name).mkdir(parents=True)
            named.append(stack.enter_context(LOGGERS[name](run_dir)))

        def log(metrics: Metrics) -> None:
            for write in (*named, *functions):
                write(metrics)

        # Copy the steps so far; functions get only further ones.
        for line in read_metrics(run_dir) if named else []:
            for write in named:
                write(line)
        yield log


def _package(module: str, package: str) -> Any:
    """An imported module; ConfigError with the ``package`` to install if it is missing."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        needs = f"logger {package!r} needs a package that is not installed"
        raise ConfigError(f"{needs}: pip install {package}") from error


@contextmanager
def _tensorboard(run_dir: Path) -> Iterator[Log]:
    _package("tensorboard", "tensorboard")
    writer = _package("torch.utils.tensorboard", "tensorboard").SummaryWriter(str(run_dir / "tensorboard"))

    def log(metrics: Metrics) -> None:
        for key, value in metrics.items():
            writer.add_scalar(key, value, int(metrics["step"]))

    try:
        yield log
    finally:
        writer.close()


@contextmanager
def _wandb(run_dir: Path) -> Iterator[Log]:
    """Log to W&B without a network, in ``run_dir``/wandb; the module's docstring explains the names."""
    manifest = read_json(run_dir / MANIFEST, Manifest)
    config: Mapping[str, Any] = manifest["run"]
    cell = "/".join([config["env"], Path(config["model"]).name, config["method"].replace("/", "-")])
    run = _package("wandb", "wandb").init(
        project=f"r3l-{config['tier']}",
        group=cell,
        name=f"{cell}/seed{config['seed']}",
        id=manifest["fingerprint"],
        dir=str(run_dir / "wandb"),
        config=dict(config),
        mode="offline",
    )
    try:
        yield lambda metrics: run.log(dict(metrics), step=int(metrics["step"]))
    finally:
        run.finish()


LOGGERS: Mapping[str, Callable[[Path], AbstractContextManager[Log]]] = {
    "tensorboard": _tensorboard,
    "wandb": _wandb,
}
