"""Training of finished runs, update by update, and the learning rates they were trained with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import pandas as pd

from r3l.config import variant
from r3l.config.method import RATE
from r3l.evaluation.curve import CurvePoint
from r3l.files.json_files import read_jsonl, stored_variants
from r3l.report.frame import ALL
from r3l.runs import metrics
from r3l.runs.manifest import Manifest
from r3l.runs.run_dir import CURVE, METRICS
from r3l.runs.run_paths import run_dir_of

Version = tuple[tuple[str, int], ...]  # the files that hold a run's metrics, with their times
# Sums over each training that was read. Tables of a report need them, of more runs than _updates keeps.
_sums: dict[tuple[Path, Version], Mapping[str, float]] = {}


def updates(evaluation: Path) -> Sequence[Mapping[str, float]]:
    """The metrics of each update of a run, given by its evaluation.json; empty if nothing was trained."""
    run_dir = run_dir_of(evaluation)
    return _updates(run_dir, _version(run_dir))


def measured(evaluation: Path) -> Mapping[str, float]:
    """Seconds and repaired faults of a run's training (r3l.runs.metrics), which are in no result."""
    run_dir = run_dir_of(evaluation)
    key = run_dir, _version(run_dir)
    if key not in _sums:
        _updates(*key)
    return _sums[key]


def _version(run_dir: Path) -> Version:
    return tuple((path.name, path.stat().st_mtime_ns) for path in stored_variants(run_dir / METRICS))


@lru_cache(maxsize=1024)  # a figure reads them once for each of its quantities
def _updates(run_dir: Path, version: Version) -> Sequence[Mapping[str, float]]:
    rows = metrics.read_metrics(run_dir)
    _sums[run_dir, version] = metrics.measured(rows)
    return rows


def held_out(evaluation: Path) -> dict[int, float]:
    """Test success after each update of ``evaluation.curve``, by update; {} if the run names none.

    ``evaluation``: the run's evaluation.json.
    """
    points = read_jsonl(run_dir_of(evaluation) / CURVE, CurvePoint)
    return {point["step"]: point["groups"][ALL]["success"] for point in points}


def learning_rate(runs: pd.DataFrame, method: str) -> float | None:
    """The learning rate with which all runs of ``method`` were trained.

    None without such runs, or if they differ in it.
    """
    trained = runs[(runs.method == method) & (runs.steps > 0)]
    rates = {*map(_rate, trained.manifest)} - {None}
    return rates.pop() if len(rates) == 1 else None


def at_rate(runs: pd.DataFrame, method: str, rate: float) -> pd.DataFrame:
    """The runs of ``method`` that were trained with ``rate``, by default or because their name says so."""
    named = variant(method).changed(**{RATE: f"{rate:g}"}).name
    candidates = runs[runs.method.isin([method, named])]
    return candidates[candidates.manifest.map(_rate) == rate]


def _rate(manifest: Manifest) -> float | None:
    """The learning rate of a run; None if its manifest is older than the key."""
    return manifest["run"].get("train", {}).get("lr")
