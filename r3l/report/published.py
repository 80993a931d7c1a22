"""Published results as data, checks of them that need no run, and ours compared with them.

They are in results/stored/published/*.csv, one file per family of tables. A quantity is what a number
measures: (backbone, benchmark, method, setting, metric). ``setting`` is empty for the paper's default (alpha
3, N = 8, S = 1, one retry, answers in <answer> tags). Where it changes one of our settings it uses our
words, so that ``R3L`` with ``alpha=5`` is our ``r3l@alpha=5``.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from r3l.core.errors import ConfigError, DataError, unknown
from r3l.files.csv_files import read_csv
from r3l.files.paths import PUBLISHED
from r3l.report.labels import backbone
from r3l.report.table import Column, Table, table
from r3l.stats.comparison import Verdict, interval_verdict
from r3l.stats.intervals import Interval

SCORES = ("success", "reward")  # a share of solved tasks; a mean of rewards in [0, 1] with partial credit
Quantity = tuple[str, str, str, str, str]


class Published(BaseModel):
    """One published number, with the digits it was printed with.

    ``backbone``, ``benchmark``, ``method``: their published names. ``setting``: what distinguishes the row,
    such as ``step=100``; else empty. ``unit``: ``share`` (0 to 1), ``turns``, ``tokens``, ``s`` or ``points``
    (a judge's score). ``n``: size of the test set. ``source``: document and file; ``source_kind``: whose
    document: ``paper``, ``author response``, ``rebuttal`` or ``third party``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    table: str = Field(min_length=1)
    backbone: str = Field(min_length=1)
    benchmark: str = Field(min_length=1)
    method: str = Field(min_length=1)
    setting: str
    metric: str = Field(min_length=1)
    unit: Literal["share", "turns", "tokens", "s", "points"]
    value: Decimal = Field(ge=0)
    n: Annotated[int | None, BeforeValidator(lambda text: text or None)] = Field(
        ge=1, description="stated size of the test set; empty: unknown, or not what is counted"
    )
    source: str = Field(min_length=1)
    source_kind: Literal["paper", "author response", "rebuttal", "third party"]
    note: str

    @property
    def quantity(self) -> Quantity:
        """The measured quantity: (backbone, benchmark, method, setting, metric).

        Several sources may give it different values.
        """
        return self.backbone, self.benchmark, self.method, self.setting, self.metric

    @property
    def label(self) -> str:
        """Method and setting, as our own tables name a variant."""
        return f"{self.method} ({self.setting})" if self.setting else self.method


def load(tables: Sequence[str] | None = None, folder: Path = PUBLISHED) -> list[Published]:
    """Read the published numbers of ``tables``, in their order, from the csv files in ``folder``.

    None: those of all tables, in the order of the files' names. Raises ConfigError if there is no table of a
    name, DataError without csv files, for a damaged line, a share above 1, and a quantity that is twice in
    one table.
    """
    files = sorted(folder.glob("*.csv"))
    if not files:
        raise DataError(f"no published results under {folder}; restore its csv files from git")
    seen: dict[tuple[str, Quantity], str] = {}
    rows = []
    for path in files:
        for where, row in read_csv(path, Published):
            if row.unit == "share" and row.value > 1:
                raise DataError(f"{where}: value {row.value} is above 1; write shares as fractions")
            key = (row.table, row.quantity)
            if key in seen:
                quantity = "/".join(row.quantity)
                raise DataError(f"{where}: {row.table} has {quantity} already in {seen[key]}; keep one")
            seen[key] = where
            rows.append(row)
    if tables is None:
        return rows
    known = {row.table for row in rows}
    for name in tables:
        if name not in known:
            raise ConfigError(unknown("published table", name, known))
    return [row for name in tables for row in rows if row.table == name]


def in_file(name: str, folder: Path = PUBLISHED) -> Sequence[tuple[str, Published]]:
    """The numbers of the file ``name``, each with its file and line (``main.csv, line 3``).

    Raises DataError if there is no such file, or if it is damaged.
    """
    path = folder / name
    if not path.is_file():
        names = ", ".join(sorted(file.name for file in folder.glob("*.csv")))
        raise DataError(f"{path} is not a file; name one of {names}")
    return [(where.removeprefix(f"{folder}/"), row) for where, row in read_csv(path, Published)]


@dataclass(frozen=True)
class Reference:
    """Published numbers to compare a table of ours with, looked up by model, benchmark and label.

    ``names`` maps a method of ours to its published name, if that is not our label. A variant keeps its
    setting: ``grpo_amplified@train.sync_interval=5`` is looked up as ``GRPO+Positive
    (train.sync_interval=5)``, unless it has a name of its own.
    """

    rows: Sequence[Published] = ()
    names: Mapping[str, str] = field(default_factory=dict)

    def label(self, method: str, label: str) -> str:
        """The published name of our ``method``; ``label``, its printed name, if it has no other."""
        name, _, changes = method.partition("@")
        if method in self.names:
            return self.names[method]
        return f"{self.names[name]} ({changes.replace(',', ', ')})" if name in self.names else label

    def get(self, model: str, benchmark: str, label: str, *metrics: str) -> Published | None:
        """The published number of the first of ``metrics`` that has one, or None.

        ``label``: published name of the method, with its setting in brackets (:meth:`label`). Default
        metrics: the score, which is success, or reward with partial credit.
        """
        name = backbone(model)
        of_model = [row for row in self.rows if row.backbone == name and row.benchmark == benchmark]
        found = {row.metric: row for row in of_model if row.label == label}
        return next((found[metric] for metric in metrics or SCORES if metric in found), None)


PaperVerdict = Literal["within interval", "outside", "not comparable", "incomplete"]
PAPER_COLUMNS = ("paper", "paper_metric", "paper_difference", "verdict", "verdict_reason")


def paper_columns(
    verdict: PaperVerdict, reason: str, number: Published | None = None, difference: float | None = None
) -> dict[str, Any]:
    """The columns PAPER_COLUMNS of a row: published number and metric, our difference to it, verdict, reason.

    ``verdict``: ``within interval``, ``outside``, ``not comparable`` or ``incomplete``. ``difference``: our
    mean minus the published number, None if they are not compared. ``reason``: the kind of interval, or why
    there is no verdict.
    """
    value, metric = (float(number.value), number.metric) if number else (None, None)
    return dict(zip(PAPER_COLUMNS, (value, metric, difference, verdict, reason), strict=True))


def against(
    number: Published | None, tier: str, measured: Interval, done: int, planned: int
) -> dict[str, Any]:
    """Compare our interval, in the published metric, with the published number, over ``done`` seeds.

    Returns the columns PAPER_COLUMNS. The verdict is "not comparable" unless ``tier`` is paper and there is a
    number, "incomplete" below ``planned`` seeds or without an interval, else "within interval" (our interval
    contains the number) or "outside".
    """
    if tier != "paper":
        return paper_columns("not comparable", f"{tier} tier: neither the paper's models nor its games")
    if number is None:
        return paper_columns("not comparable", "the paper has no such number")
    difference = measured.mean - float(number.value)
    if done < planned:
        return paper_columns("incomplete", f"{done} of {planned} seeds", number, difference)
    match interval_verdict(measured, float(number.value)):
        case Verdict.INCOMPLETE:
            reason = "under three seeds there is no interval"
            return paper_columns("incomplete", reason, number, difference)
        case Verdict.INCONCLUSIVE:
            return paper_columns("within interval", measured.kind, number, difference)
        case _:
            return paper_columns("outside", measured.kind, number, difference)


def is_count(value: Decimal, n: int) -> bool:
    """True if a share k/n can have been printed as ``value``, rounded (halves either way) or truncated.

    Then one pass over ``n`` tasks that are solved or not can have been printed as ``value``. If not,
    something was averaged, smoothed, or measured on another number of tasks. The arithmetic is exact: in
    units u of the last digit, k/n is printed as v if v - u/2 <= k/n <= v + u/2 (rounded) or v <= k/n < v + u
    (truncated).
    """
    exponent = value.as_tuple().exponent
    unit = Decimal(1).scaleb(exponent if isinstance(exponent, int) else 0)
    low = (value - unit / 2) * n
    below = (value + unit) * n
    return math.ceil(max(low, Decimal(0))) < min(below, Decimal(n + 1))


@dataclass(frozen=True)
class PublishedCheck:
    """A published number with the results of two checks.

    ``is_count``: whether k of n solved tasks can give this number (see :func:`is_count`); None if it is not a
    share of solved tasks, or if the source does not state n. ``conflict``: the different values that are
    published for the same quantity, with their tables, as in ``0.720 (table1, table2); 0.780 (group_size)``;
    None if there is only one value.
    """

    number: Published
    is_count: bool | None
    conflict: str | None

    def flat(self) -> dict[str, Any]:
        """The check as one flat record for JSON output: the published number's fields and both findings."""
        return self.number.model_dump(mode="json") | {"is_count": self.is_count, "conflict": self.conflict}


def check(rows: Sequence[Published], known: Sequence[Published] | None = None) -> list[PublishedCheck]:
    """Check for each of ``rows`` if its value is a multiple of 1/n, and if other values are published for it.

    Only shares with a known n are checked against 1/n; mean rewards are not. Other values of the same
    quantity are looked for in ``known``, by default in ``rows`` themselves.
    """
    tables: dict[Quantity, dict[Decimal, list[str]]] = defaultdict(lambda: defaultdict(list))
    for row in rows if known is None else known:
        tables[row.quantity][row.value].append(row.table)

    checks = []
    for row in rows:
        values = sorted(tables[row.quantity].items())
        conflict = "; ".join(f"{value} ({', '.join(sorted(names))})" for value, names in values)
        # A mean reward has partial credit, so it need not be a multiple of 1/n.
        counted = row.unit == "share" and row.metric != "reward"
        multiple = is_count(row.value, row.n) if counted and row.n else None
        checks.append(PublishedCheck(row, multiple, conflict if len(values) > 1 else None))
    return checks


def summary(rows: Sequence[PublishedCheck]) -> dict[str, int]:
    """Counts of ``rows``: cells (all), checked (against 1/n), impossible (not :func:`is_count`), in_conflict.

    ``quantities_in_conflict``: a quantity with conflicting values counts once.
    """
    return {
        "cells": len(rows),
        "checked": sum(row.is_count is not None for row in rows),
        "impossible": sum(row.is_count is False for row in rows),
        "in_conflict": sum(row.conflict is not None for row in rows),
        "quantities_in_conflict": len({row.number.quantity for row in rows if row.conflict}),
    }


def impossible_table(rows: Sequence[PublishedCheck]) -> Table:
    """The numbers that are not a multiple of 1/n, each with the nearest two that are."""

    def nearest(row: PublishedCheck) -> str:
        value = row.number.value
        n = row.number.n or 1
        below = math.floor(value * n)
        return f"{below}/{n} = {below / n:.4f}, {below + 1}/{n} = {(below + 1) / n:.4f}"

    columns = [
        Column("table", lambda row: row.number.table),
        Column("model", lambda row: row.number.backbone, drop=1),
        Column("benchmark", lambda row: row.number.benchmark),
        Column("row", lambda row: row.number.label),
        Column("value", lambda row: str(row.number.value), right=True),
        Column("nearest", nearest),
    ]
    impossible = [row for row in rows if row.is_count is False]
    note = "no k of n solved tasks gives this value, rounded or truncated: averaged, smoothed, or another n"
    return table("Published numbers that are no multiple of 1/n", columns, impossible, note)


def summary_table(rows: Sequence[PublishedCheck]) -> Table:
    """The counts of each published table and of all, with the sources as notes."""
    names = sorted({row.number.table for row in rows})
    parts = {name: [row for row in rows if row.number.table == name] for name in names}
    counts = [{"table": name} | summary(part) for name, part in (parts | {"all": list(rows)}).items()]
    columns = [Column("table"), *(Column(name, form="d") for name in counts[0] if name != "table")]
    return table(
        "Published numbers",
        columns,
        counts,
        "checked: scores over a stated number n of tasks; impossible: not a multiple of 1/n, rounded or "
        "truncated; quantities_in_conflict: published with different values, each counted once.",
        *sorted({f"{row.number.source_kind}: {row.number.source}" for row in rows}),
    )
