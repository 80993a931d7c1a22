"""The long form of a table: one row a number, a dict by column. It is what CSV files hold and JSON prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from r3l.config.corrections import MEANINGS
from r3l.evaluation.statistics import Interval
from r3l.files.writing import writable, write_text_atomic
from r3l.report.labels import env_label
from r3l.report.render import to_csv

LongRow = dict[str, Any]  # None: what does not exist
DIGITS = 4
CONSTANT_ANSWER, CONSTANT_ANSWER_LABEL = "constant_answer_baseline", "Constant answer"  # in place of a method
INTERVAL = ("mean", "low", "high", "interval")


def rounded(value: float | None) -> float | None:
    """As tables store numbers."""
    return None if value is None else round(float(value), DIGITS)


def interval_columns(interval: Interval, prefix: str = "") -> LongRow:
    """The columns INTERVAL of an interval."""
    values = (rounded(interval.mean), rounded(interval.low), rounded(interval.high), interval.kind)
    return {f"{prefix}{key}": value for key, value in zip(INTERVAL, values, strict=True)}


def task_set_names(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """``ENV NAME (hash)`` of each task set that the rows were measured on."""
    return sorted({f"{r['env']} {r['task_set']} ({r['task_set_sha256'][:12]})" for r in rows if r.get("task_set")})


def seeds_shown(row: Mapping[str, Any]) -> str:
    """``1/3``: done, of those planned; ``15`` where there are more than were asked for."""
    done, planned = row["seeds_done"], row["seeds_planned"]
    return f"{done}/{planned}" if done <= planned else str(done)


def outdated_notes(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """For each correction that runs of these rows lack: what it mended, and which methods are concerned where."""
    places: dict[str, dict[str, dict[str, None]]] = {}
    for row in rows:
        for name in filter(None, (row.get("outdated") or "").split(", ")):
            places.setdefault(name, {}).setdefault(row["label"], {})[env_label(row["env"])] = None
    return [
        f"Outdated until run again ({name}: {MEANINGS[name]}): "
        + "; ".join(f"{label} on {', '.join(envs)}" for label, envs in methods.items())
        + "."
        for name, methods in sorted(places.items())
    ]


def notes_of_runs(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What must be said of the runs behind rows of scores: outdated ones, and what docs/preregistration.md was then.

    It does not say that the runs are part of that plan: every run's manifest has the sha256, a user's own too."""
    ran = [row.get("preregistration") for row in rows if row["seeds_done"]]
    dated = list(filter(None, ran))
    if not dated:
        return outdated_notes(rows)
    texts = {text for plan in dated for text in plan.split(", ")}
    part = "" if len(dated) == len(ran) else f" ({len(dated)} of {len(ran)} rows)"
    which = f"at sha256 {min(texts)}" if len(texts) == 1 else f"at {len(texts)} versions, which r3l verify names"
    return [f"At the time of the runs, docs/preregistration.md was {which}{part}.", *outdated_notes(rows)]


def write_csv(rows: Sequence[LongRow], out: Path) -> None:
    """Atomic; raises RunDirectoryError naming the file where it cannot be written."""
    write_text(to_csv(rows), out)


def write_text(text: str, out: Path) -> None:
    """Atomic; raises RunDirectoryError naming the file where it cannot be written."""
    with writable(out):
        write_text_atomic(out, text)
