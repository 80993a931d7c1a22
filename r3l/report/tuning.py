"""Tunings as a table: what each learning rate scored on the validation task set, and which was chosen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from r3l.config.tuning import FOLDER
from r3l.core.errors import DataError
from r3l.evaluation.tuning import TuningResult
from r3l.files.json_files import read_json
from r3l.report.labels import env_label, method_label
from r3l.report.table import Cell, Column, Table, table


def tunings(results: Path, tier: str, envs: Sequence[str] | None, method: str | None) -> list[TuningResult]:
    """The tunings of a tier below ``results``, by default of all environments and methods.

    Raises DataError if there are none, if a file is damaged, or if it chose a learning rate that it did not
    try.
    """
    chosen: list[TuningResult] = []
    for path in sorted((results / FOLDER / tier).glob("*/*.json")):
        tuning = read_json(path, TuningResult)
        tried = [rate["lr"] for rate in tuning["rates"]]
        if tuning["chosen"] not in tried:
            raise DataError(
                f"{path}: key 'chosen' has value {tuning['chosen']!r}; it must be a rate that was tried: "
                f"{tried}"
            )
        if tuning["env"] in (envs or [tuning["env"]]) and method in (None, tuning["method"]):
            chosen.append(tuning)
    if not chosen:
        folder = results / FOLDER / tier
        raise DataError(f"there is no such tuning below {folder}; r3l tune METHOD --env ENV makes one")
    return chosen


def tuning_table(tunings: Sequence[TuningResult]) -> Table:
    """A line per method and environment: success at the lowest, usual and highest learning rate.

    Bold: the chosen rate. Further columns: the chosen rate, the standard error, and the rollouts, tokens and
    core-seconds of all runs of a tuning. ``tunings``: at least one, all of one tier.
    """

    def rate(place: int, name: str) -> Column:
        def cell(tuning: TuningResult) -> Cell:
            tried = tuning["rates"][place]
            seeds = ", ".join(f"{run['success']:.3f}" for run in tried["runs"])
            text = f"{tried['lr']:g}: {tried['success']:.3f} ({seeds})"
            return Cell(text, bold=tried["lr"] == tuning["chosen"])

        return Column(name, cell, right=True, drop=0 if name == "usual" else 1)

    def total(name: str, key: Literal["rollouts", "generated", "seconds"]) -> Column:
        def over_all_runs(tuning: TuningResult) -> float:
            return sum(run[key] for rate in tuning["rates"] for run in rate["runs"])

        return Column(name, over_all_runs, ",.0f", drop=2)

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
    # Each environment was tuned on its validation task set, which the note names.
    sets = {f"{t['env']} {t['task_set']['name']} ({t['task_set']['sha256'][:12]})" for t in tunings}
    return table(
        f"Learning rates tuned on validation, tier {tunings[0]['tier']}",
        columns,
        tunings,
        f"rule: {tunings[0]['rule']}. Bold: chosen; in brackets the seeds; rollouts, tokens, core-seconds: "
        f"of all runs of a tuning; validation task sets: {', '.join(sorted(sets))}",
    )
