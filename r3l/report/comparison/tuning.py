"""Tunings as a table: what each rate scored on the validation task set, and which was chosen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from r3l.config.tuning import FOLDER
from r3l.core.errors import DataError
from r3l.files.json_files import read_json
from r3l.report.labels import env_label, method_label
from r3l.report.table import Cell, Column, Row, Table, table

Tuning = dict[str, Any]


def tunings(results: Path, tier: str, envs: Sequence[str] | None, method: str | None) -> list[Tuning]:
    """The tunings of a tier below ``results``, of some environments and a method or of all. Raises DataError."""
    found = [read_json(path) for path in sorted((results / FOLDER / tier).glob("*/*.json"))]
    chosen = [t for t in found if t["env"] in (envs or [t["env"]]) and t["method"] in (method or t["method"],)]
    if not chosen:
        raise DataError(f"there is no such tuning below {results / FOLDER / tier}; r3l tune METHOD --env ENV makes one")
    return chosen


def tuning_table(tunings: Sequence[Tuning]) -> Table:
    """A line a method and environment; the columns are its lowest, usual and highest rate."""
    cells = [_cells(tuning) for tuning in tunings]
    return table(
        f"Learning rates tuned on validation, tier {tunings[0]['tier']}",
        [Column(name, right=name not in ("env", "method")) for name in cells[0]],
        cells,
        f"rule: {tunings[0]['rule']}. Bold: chosen; in brackets the seeds; rollouts, tokens, core-seconds: of all runs "
        "of a tuning; validation task sets: "
        + ", ".join(sorted({f"{t['env']} {t['task_set']['name']} ({t['task_set']['sha256'][:12]})" for t in tunings})),
    )


def _cells(tuning: Tuning) -> Row:
    runs = [run for rate in tuning["rates"] for run in rate["runs"]]
    row = {"env": Cell(env_label(tuning["env"])), "method": Cell(method_label(tuning["method"]))}
    for name, rate in zip(("low", "usual", "high"), tuning["rates"], strict=True):
        seeds = ", ".join(f"{run['success']:.3f}" for run in rate["runs"])
        row[name] = Cell(f"{rate['lr']:g}: {rate['success']:.3f} ({seeds})", bold=rate["lr"] == tuning["chosen"])
    return row | {
        "chosen": Cell(f"{tuning['chosen']:g}"),
        "error": Cell(f"{tuning['standard_error']:.3f}"),
        "rollouts": Cell(f"{sum(run['rollouts'] for run in runs):,.0f}"),
        "tokens": Cell(f"{sum(run['generated'] for run in runs):,.0f}"),
        "seconds": Cell(f"{sum(run['seconds'] for run in runs):,.0f}"),
    }
