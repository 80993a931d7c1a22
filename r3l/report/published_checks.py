"""Checks of published numbers that need no run: multiples of 1/n, contradictions between sources."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from r3l.report.published import Published, Quantity
from r3l.report.table import Column, Table, table


def is_count(value: Decimal, n: int) -> bool:
    """True if a share k/n can have been printed as ``value``, rounded (halves either way) or truncated.

    Then one pass over ``n`` tasks that are solved or not can have been printed as ``value``. If not,
    something was averaged, smoothed, or measured on another number of tasks. The arithmetic is exact: in
    units u of the last digit, k/n is printed as v if v - u/2 <= k/n <= v + u/2 (rounded) or v <= k/n < v + u
    (truncated).
    """
    exponent = value.as_tuple().exponent
    unit = Decimal(1).scaleb(exponent if isinstance(exponent, int) else 0)
    low, below = (value - unit / 2) * n, (value + unit) * n
    return math.ceil(max(low, Decimal(0))) < min(below, Decimal(n + 1))


@dataclass(frozen=True)
class PublishedCheck:
    """A published number with what was checked.

    ``is_count`` is None if it is no share of solved tasks, or their number is not stated. ``conflict``: the
    different values that sources give for the same quantity, with their tables: ``0.720 (table1, table2);
    0.780 (group_size)``.
    """

    number: Published
    is_count: bool | None
    conflict: str | None

    def flat(self) -> dict[str, Any]:
        """The check as one flat record for JSON output: the published number's fields and both findings."""
        return self.number.model_dump(mode="json") | {"is_count": self.is_count, "conflict": self.conflict}


def check(rows: Sequence[Published], known: Sequence[Published] | None = None) -> list[PublishedCheck]:
    """Check ``rows``; conflicts are looked for in ``known``, by default the same rows."""
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
    """Counts of the findings; a quantity with conflicting values counts once, however often it was published."""
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
        value, n = row.number.value, row.number.n or 1
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
