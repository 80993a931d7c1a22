"""Training of finished runs, update by update, and the learning rates they were trained with."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from r3l.config import variant
from r3l.config.method import RATE
from r3l.evaluation.curve import CurvePoint
from r3l.files.json_files import read_jsonl, variants
from r3l.report.frame import ALL, BENCH
from r3l.runs import metrics, step_metrics
from r3l.runs.run_dir import CURVE, METRICS
from r3l.runs.run_paths import run_dir_of

FIRST = 1 / 3  # of the updates count as early
# Updates of a running mean; one update of the nano tier is too few tasks to be seen in a line. Figures draw
# it, and it is part of every claim with ``until`` (r3l.report.claim_learning): another window may give another
# verdict.
WINDOW = 5
Version = tuple[str, int] | None  # the file that holds lines of a run, with its time; None: no such file


class TrainingColumns:
    """The metrics of a finished training by name: an array, shape (U,), with NaN at updates without a value.

    A metric that no update recorded is all NaN. ``updates``: number of updates. Metrics are read when they
    are first asked for, together with the others of their set in r3l.runs.step_metrics.
    """

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._known: dict[str, NDArray[np.float64]] = {}
        self.updates = len(self[metrics.GENERATED_TOKENS])

    def __getitem__(self, name: str) -> NDArray[np.float64]:
        if name not in self._known:
            sets = (step_metrics.KEPT, step_metrics.OF_COUNTS, step_metrics.OF_TEACHERS, (name,))
            names = next(names for names in sets if name in names)
            columns = step_metrics.read_columns(self._run_dir, names)
            self._known |= {key: np.array(column, dtype=float) for key, column in columns.items()}
        return self._known[name]

    def counts(self, name: str) -> NDArray[np.float64]:
        """The metric at each update, 0 where it has none."""
        values_U = self[name]
        return np.where(np.isnan(values_U), 0.0, values_U)  # nan_to_num takes several times as long


@dataclass(frozen=True)
class TrainingRecord:
    """The part of a run's metrics that several tables and figures read.

    ``measured``: sums over all updates of seconds and repaired faults, which are in no result; none that is
    0. ``success_U``: success of base rollouts at each update, NaN at one without any. ``tokens_spent``,
    ``rollouts_spent``: generated tokens and rollouts after 0, 1, ... all updates. ``taught``: whether it has
    metrics of a teacher. ``columns``: the metrics themselves.
    """

    measured: Mapping[str, float]
    success_U: NDArray[np.float64]
    tokens_spent: NDArray[np.float64]
    rollouts_spent: NDArray[np.float64]
    taught: bool
    columns: TrainingColumns


def updates(evaluation: Path) -> Sequence[Mapping[str, float]]:
    """The metrics of each update of a run, given by its evaluation.json; empty if nothing was trained.

    Cached until the file of metrics changes. Raises DataError if it is damaged.
    """
    run_dir = run_dir_of(evaluation)
    return _updates(run_dir, _version(run_dir, METRICS))


def training_of(evaluation: Path) -> TrainingRecord:
    """The training of a run, given by its evaluation.json; cached until the file of metrics changes.

    Raises DataError if that is damaged. Arrays are empty (or begin with 0 alone) if nothing was trained.
    """
    run_dir = run_dir_of(evaluation)
    return _training(run_dir, _version(run_dir, METRICS))


def _version(run_dir: Path, name: str) -> Version:
    for variant_path in _variants(run_dir, name):  # the first one that exists is read
        try:
            return variant_path, os.stat(variant_path).st_mtime_ns
        except OSError:
            continue
    return None


@cache  # claims and figures ask for the version of every run several times
def _variants(run_dir: Path, name: str) -> tuple[str, ...]:
    return tuple(map(str, variants(run_dir / name)))


@lru_cache(maxsize=1024)  # a table reads them once for each of its measures
def _updates(run_dir: Path, version: Version) -> Sequence[Mapping[str, float]]:
    return step_metrics.read_metrics(run_dir)


@cache  # a few kB a run, which several tables and figures of a report need
def _training(run_dir: Path, version: Version) -> TrainingRecord:
    columns = TrainingColumns(run_dir)
    # As r3l.runs.step_metrics.base_success, for all updates together.
    bases_U = columns.counts("rollouts") - columns.counts("retry/count")
    solved_U = columns.counts("stop/success") - columns.counts("retry/success")
    with np.errstate(divide="ignore", invalid="ignore"):
        success_U = np.where(bases_U == 0, np.nan, solved_U / bases_U)
    tokens, rollouts = (
        np.cumsum(np.append(0.0, columns.counts(name))) for name in (metrics.GENERATED_TOKENS, "rollouts")
    )
    taught = not np.isnan(columns[metrics.TEACHER_CONTEXTS]).all()
    measured = {name: sum(columns.counts(name).tolist()) for name in metrics.MEASURED}
    measured = {name: total for name, total in measured.items() if total}
    return TrainingRecord(measured, success_U, tokens, rollouts, taught, columns)


def held_out(evaluation: Path) -> dict[int, float]:
    """Test success (0 to 1) after each update that ``evaluation.curve`` names, by update.

    ``evaluation``: the run's evaluation.json. It reads the curve.jsonl next to it; {} without that file, as
    in runs that name no updates. Raises DataError if it is damaged.
    """
    run_dir = run_dir_of(evaluation)
    return _held_out(run_dir, _version(run_dir, CURVE))


@cache  # a few numbers a run, which every claim about it needs
def _held_out(run_dir: Path, version: Version) -> dict[int, float]:
    points = read_jsonl(run_dir / CURVE, CurvePoint) if version else []
    return {point["step"]: point["groups"][ALL]["success"] for point in points}


def window_sums(values_U: NDArray[Any], window: int) -> NDArray[np.float64]:
    """Sum of the last ``window`` values at each update, shape (U,); of fewer at the first ones.

    ``values_U``: without NaN. The oldest value is added first.
    """
    sums_U = np.zeros(len(values_U))
    for age in reversed(range(min(window, len(values_U)))):
        sums_U[age:] += values_U[: len(values_U) - age]
    return sums_U


def running_mean(values_U: NDArray[np.float64], window: int) -> NDArray[np.float64]:
    """Mean of the last ``window`` values at each update, shape (U,), without those that are NaN; NaN for none."""
    known_U = ~np.isnan(values_U)
    with np.errstate(invalid="ignore"):
        mean_U = window_sums(np.where(known_U, values_U, 0), window) / window_sums(known_U, window)
    return np.asarray(mean_U)


def early_success(evaluation: Path) -> float:
    """Mean success of base rollouts over the first third of a run's updates; ``evaluation``: its file.

    Only updates with base rollouts count, and a third of their number, rounded, at least one. NaN if there
    are none.
    """
    success_U = training_of(evaluation).success_U
    known_U = success_U[~np.isnan(success_U)]
    first_U = known_U[: max(1, round(len(known_U) * FIRST))]
    return float(np.mean(first_U)) if len(first_U) else math.nan


def learning_rate(runs: pd.DataFrame, method: str) -> float | None:
    """The learning rate with which the runs of ``method`` in ``runs`` were trained.

    None without such runs, or if they differ in it. Runs whose manifest does not say it are left out.
    """
    rates = {*runs.rate[(runs.method == method) & (runs.steps > 0)].dropna()}
    return rates.pop() if len(rates) == 1 else None


def at_rate(runs: pd.DataFrame, method: str, rate: float) -> pd.DataFrame:
    """The rows of ``runs`` of ``method`` that were trained with the learning rate ``rate``.

    They have the method's own name, or the name of its variant that changes only this rate. Of a seed with
    runs under both names only the one under the method's own is kept.
    """
    named = variant(method).changed(**{RATE: f"{rate:g}"}).name
    found = runs[runs.method.isin([method, named]) & (runs.rate == rate)]
    own_first = found.sort_values("method", key=lambda names: names != method, kind="stable")
    return own_first.drop_duplicates([*BENCH, "group", "seed"])
