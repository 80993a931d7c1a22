"""Tunings as a table: what each rate scored on the validation task set, and which was chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from r3l.config.tuning import FOLDER
from r3l.core.errors import DataError
from r3l.files.json_files import read_json
from r3l.files.shapes import Tuning as Tuned
from r3l.report.labels import env_label, method_label
from r3l.report.table import Cell, Column, Table, table

Tuning = dict[str, Any]


def tunings(results: Path, tier: str, envs: Sequence[str] | None, method: str | None) -> list[Tuning]:
    """The tunings of a tier below ``results``, of some environments and a method or of all. Raises DataError."""
    found = [read_json(path, Tuned) for path in sorted((results / FOLDER / tier).glob("*/*.json"))]
    chosen = [t for t in found if t["env"] in (envs or [t["env"]]) and t["method"] in (method or t["method"],)]
    if not chosen:
        raise DataError(f"there is no such tuning below {results / FOLDER / tier}; r3l tune METHOD --env ENV makes one")
    return chosen


def tuning_table(tunings: Sequence[Tuning]) -> Table:
    """A line a method and environment; the columns are its lowest, usual and highest rate."""
    sets = {f"{t['env']} {t['task_set']['name']} ({t['task_set']['sha256'][:12]})" for t in tunings}

    def rate(place: int, name: str) -> Column:
        return Column(name, lambda tuning: _rate(tuning, tuning["rates"][place]), right=True)

    def total(name: str, key: str) -> Column:
        return Column(name, lambda t: sum(run[key] for rate in t["rates"] for run in rate["runs"]), ",.0f")

    columns = [
        Column("env", lambda tuning: env_label(tuning["env"])),
        Column("method", lambda tuning: method_label(tuning["method"])),
        *(rate(place, name) for place, name in enumerate(("low", "usual", "high"))),
        Column("chosen", form="g"),
        Column("error", lambda tuning: tuning["standard_error"], ".3f"),
        total("rollouts", "rollouts"),
        total("tokens", "generated"),
        total("seconds", "seconds"),
    ]
    return table(
        f"Learning rates tuned on validation, tier {tunings[0]['tier']}",
        columns,
        tunings,
        f"rule: {tunings[0]['rule']}. Bold: chosen; in brackets the seeds; rollouts, tokens, core-seconds: of all runs "
        f"of a tuning; validation task sets: {', '.join(sorted(sets))}",
    )


def _rate(tuning: Tuning, rate: Mapping[str, Any]) -> Cell:
    seeds = ", ".join(f"{run['success']:.3f}" for run in rate["runs"])
    return Cell(f"{rate['lr']:g}: {rate['success']:.3f} ({seeds})", bold=rate["lr"] == tuning["chosen"])
