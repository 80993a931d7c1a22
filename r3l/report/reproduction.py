"""Fresh runs beside the stored runs of the same cell and seed: did this machine reproduce them?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from r3l.report.records import Record, load
from r3l.runs.run_dir import EVALUATION
from r3l.runs.run_paths import find_runs
from r3l.stats.comparison import Verdict, interval_verdict
from r3l.stats.intervals import wilson_interval

Row = dict[str, Any]


def reproduction(results: Path, stored: Path, evaluations: Iterable[Path] | None = None) -> list[Row]:
    """A row for each run under ``results`` or for the given ``evaluations``, wherever they lie (see :func:`beside`)."""
    return [_row(record, stored) for record in load(evaluations or find_runs(results))]


def _row(fresh: Record, stored: Path) -> Row:
    run = f"{fresh.evaluation['cell']}/seed{fresh.seed}"
    twin = stored / run / EVALUATION
    row: Row = {"run": run, "episodes": len(fresh.episodes), "success": fresh.groups["all"]["success"]}
    if not twin.is_file():
        return row | {"verdict": "not stored"}
    (old,) = load([twin])
    return row | beside(fresh, old)


def sentence(evaluation: Path, stored: Path) -> str:
    """The same of one run, in words."""
    (fresh,) = load([evaluation])
    return _sentence(_row(fresh, stored))


def beside(fresh: Record, old: Record) -> Row:
    """How a run compares with the stored one.

    ``equal``: episodes that agree in every field that is stored, the hash of the transcript included. ``verdict``:
    another configuration; identical; within or outside what a second sample of the stored run's episodes would give
    (Wilson's 95 % interval). ``differs``: what may explain it: engine, versions, hardware.
    """
    row: Row = {"stored_success": old.groups["all"]["success"]}
    if fresh.fingerprint != old.fingerprint:
        return row | {"verdict": "another configuration"}
    row["equal"] = equal_episodes(fresh.episodes, old.episodes)
    if row["equal"] == len(old.episodes) == len(fresh.episodes):
        return row | {"verdict": "identical"}
    stored = wilson_interval(old.successes("all"))
    inside = interval_verdict(stored, fresh.groups["all"]["success"]) is Verdict.INCONCLUSIVE
    return row | {
        "interval": [stored.low, stored.high],
        "verdict": "within the interval" if inside else "outside the interval",
        "differs": _circumstances(fresh, old),
    }


def equal_episodes(fresh: Sequence[Row], old: Sequence[Row]) -> int:
    """How many stored episodes have a fresh one of the same task and member with the same values."""
    by_key = {(episode["task"], episode["member"]): episode for episode in fresh}
    twins = [(episode, by_key.get((episode["task"], episode["member"]), {})) for episode in old]
    return sum(episode.items() <= twin.items() for episode, twin in twins)


def lines(rows: Iterable[Row]) -> list[str]:
    return [f"{row['run']}: {_sentence(row)}" for row in rows]


def _sentence(row: Row) -> str:
    if row["verdict"] == "not stored":
        return "there is no stored run of it"
    if row["verdict"] == "another configuration":
        return "the stored run has another configuration"
    if row["verdict"] == "identical":
        return f"identical to the stored run in all {row['episodes']} episodes"
    low, high = row["interval"]
    where = row["verdict"].removesuffix(" the interval")
    because = f"; {', '.join(row['differs'])}" if row["differs"] else ""
    return (
        f"{row['equal']} of {row['episodes']} episodes equal the stored run's; success {row['success']:.3f}, "
        f"{where} its interval ({row['stored_success']:.3f}, {low:.3f} to {high:.3f}){because}"
    )


def _circumstances(fresh: Record, old: Record) -> list[str]:
    ours, theirs = fresh.manifest, old.manifest
    differences = []
    for name in sorted({*ours["versions"], *theirs["versions"]}):
        here, there = ours["versions"].get(name), theirs["versions"].get(name)
        if here != there:
            differences.append(f"{name} {here}, stored {there}")
    if ours["hardware"] != theirs["hardware"]:
        differences.append("other hardware")
    return differences
