"""Forecast of a training from its first steps: ``r3l train --set train.steps=3`` leaves forecast.json.

A step takes the wall-clock time from one report to the next, so weights sent and checkpoints saved are in it.
The first step also loads the model and compiles kernels; a training pays for that once.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean

from typing_extensions import TypedDict

from r3l.config import Run, gpu_cluster
from r3l.files.json_files import read_json
from r3l.files.writing import write_json_atomic
from r3l.processes.progress import clock
from r3l.runs.metrics import COLLECT_SECONDS, TRAIN_SECONDS

FILE = "forecast.json"
LEAST_STEPS = 2  # the first one also loads and compiles


class Forecast(TypedDict):
    """forecast.json. ``of``: fingerprint of the run without seed and number of steps. Times are in seconds.

    ``start``: until the first step begins, kernels compiled; ``collect`` and ``train``: these phases of one
    step; ``between``: the rest of a step (weights sent, checkpoints saved), negative if phases overlap;
    ``end``: the last export; ``measured``: number of steps that were averaged. ``evaluation``: one evaluation
    on the test tasks by Trinity, every ``evaluate_every`` steps (0: never); the one before the first step is
    in ``start``.
    """

    schema: int
    of: str
    gpus: int
    measured: int
    start: float
    collect: float
    train: float
    between: float
    end: float
    evaluation: float
    evaluate_every: int


@dataclass
class StepTimes:
    """A logger (r3l.runs.loggers) that keeps each step's metrics and when they were reported.

    ``reported``: seconds since this object was made, by the monotonic clock.
    """

    began: float = field(default_factory=time.monotonic)
    reported: list[float] = field(default_factory=list)
    metrics: list[Mapping[str, float]] = field(default_factory=list)

    def __call__(self, metrics: Mapping[str, float]) -> None:
        self.reported.append(time.monotonic() - self.began)
        self.metrics.append(metrics)

    def forecast(
        self, run: Run, ended: float | None = None, evaluation: float = 0.0, evaluate_every: int = 0
    ) -> Forecast:
        """The forecast for runs like ``run``, which has ended now (or at ``ended``, by time.monotonic).

        ``evaluation``: seconds of one evaluation, made every ``evaluate_every`` steps (0: never). At least
        LEAST_STEPS (2) steps must have been reported; averages leave out the first.
        """
        total = (time.monotonic() if ended is None else ended) - self.began
        # The first step also loads and compiles: only the later ones are averaged.
        first, *later = self.reported
        step = (later[-1] - first) / len(later)
        collect = mean(line[COLLECT_SECONDS] for line in self.metrics[1:])
        train = mean(line[TRAIN_SECONDS] for line in self.metrics[1:])
        return {
            "schema": 1,
            "of": kind_of(run),
            "gpus": _gpus(run),
            "measured": len(later),
            "start": max(0.0, first - step),
            "collect": collect,
            "train": train,
            "between": step - collect - train,
            "end": total - later[-1],
            "evaluation": evaluation,
            "evaluate_every": evaluate_every,
        }


def kind_of(run: Run) -> str:
    """The fingerprint of ``run`` with seed 0 and one step, equal for runs that differ only in these two."""
    train = run.train.model_copy(update={"steps": 1})
    return run.model_copy(update={"seed": 0, "train": train}).fingerprint()


def seconds(forecast: Forecast, steps: int) -> float:
    """Expected seconds of a training of ``steps`` steps: start, steps, evaluations on the way, and end."""
    step = forecast["collect"] + forecast["train"] + forecast["between"]
    every = forecast["evaluate_every"]
    evaluations = steps // every if every else 0
    return forecast["start"] + steps * step + evaluations * forecast["evaluation"] + forecast["end"]


def write(forecast: Forecast, run_dir: Path) -> None:
    """Write forecast.json into ``run_dir``, atomically."""
    write_json_atomic(run_dir / FILE, forecast)


def find(run: Run, results: Path) -> Forecast | None:
    """The newest forecast of a run like ``run`` on the same number of GPUs; None without one.

    Runs are alike if they differ only in seed and number of steps. It reads the forecast.json of all seeds of
    the run's method, model and environment in ``results``, including directories that were set aside. Raises
    DataError for a damaged file.
    """
    files: Iterable[Path] = (results / run.directory).parent.glob(f"*/{FILE}")
    for file in sorted(files, key=lambda path: path.stat().st_mtime, reverse=True):
        forecast = read_json(file, Forecast)
        if (forecast["of"], forecast["gpus"]) == (kind_of(run), _gpus(run)):
            return forecast
    return None


def sentences(forecast: Forecast, steps: int) -> str:
    """The forecast of a training of ``steps`` steps as text: two lines, the total and each phase's time."""
    phases = {"collect": forecast["collect"], "train": forecast["train"], "between": forecast["between"]}
    step = sum(phases.values())
    parts = [f"{phase} {_spelled(duration)}" for phase, duration in phases.items()]
    evaluations = ""
    if every := forecast["evaluate_every"]:
        evaluations = f", every {every} steps an evaluation, {_spelled(forecast['evaluation'])}"
    return (
        f"forecast for {steps} steps, from {forecast['measured']} measured after the first: "
        f"{clock(seconds(forecast, steps))}\n"
        f"start {_spelled(forecast['start'])}, a step {_spelled(step)} ({', '.join(parts)}), "
        f"end {_spelled(forecast['end'])}{evaluations}"
    )


def _spelled(seconds: float) -> str:
    return f"{seconds:.1f} s" if abs(seconds) < 60 else clock(seconds)


def _gpus(run: Run) -> int:
    planned = gpu_cluster(run)
    return planned.nodes * planned.gpus_per_node if planned else 0
