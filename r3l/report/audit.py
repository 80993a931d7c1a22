"""What can be checked of published numbers without running anything: granularity, binomial noise, contradictions."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table

from r3l.report.published import Published, Quantity

Row = dict[str, Any]


def nearest_count(value: Decimal, n: int) -> int:
    """The k in 0..n for which k/n is closest to ``value`` in [0, 1]."""
    return min(n, math.floor(value * n + Decimal("0.5")))


def is_count(value: Decimal, n: int) -> bool:
    """Whether some k/n, rounded (halves either way) or truncated to the digits of ``value``, is ``value``.

    So one pass over ``n`` tasks that are solved or not can have been printed as ``value``; if not, something was
    averaged, smoothed, or measured on another number of tasks. Exact arithmetic: in units u of the last digit,
    k/n is printed as v if v - u/2 <= k/n <= v + u/2 (rounded) or v <= k/n < v + u (truncated).
    """
    exponent = value.as_tuple().exponent
    unit = Decimal(1).scaleb(exponent if isinstance(exponent, int) else 0)
    low, below = (value - unit / 2) * n, (value + unit) * n
    return math.ceil(max(low, Decimal(0))) < min(below, Decimal(n + 1))


def standard_error(value: Decimal, n: int) -> float:
    """sqrt(p (1 - p) / n): binomial noise of one pass. For rewards in [0, 1] with mean p it is an upper bound."""
    p = float(value)
    return math.sqrt(p * (1 - p) / n)


def conflicts(rows: Sequence[Published]) -> dict[Quantity, list[Published]]:
    """Quantities that were published with different values, and all their rows."""
    found: dict[Quantity, list[Published]] = defaultdict(list)
    for row in rows:
        found[row.quantity].append(row)
    return {quantity: same for quantity, same in found.items() if len({row.value for row in same}) > 1}


def audit(rows: Sequence[Published], against: Sequence[Published] | None = None) -> list[Row]:
    """``rows`` with their checks; conflicts are looked for in ``against``, by default the same rows.

    ``is_count`` is None where the number is no share of tasks that are solved or not, or their number is not stated.
    """
    known = conflicts(rows if against is None else against)
    return [_audit(row, known.get(row.quantity, [])) for row in rows]


def _audit(row: Published, same: Sequence[Published]) -> Row:
    counted = row.n is not None and row.unit == "share" and row.metric != "reward"
    return {
        **row.model_dump(exclude={"source", "source_kind", "note"}),
        "value": str(row.value),
        "is_count": is_count(row.value, row.n) if counted and row.n else None,
        "nearest": f"{nearest_count(row.value, row.n)}/{row.n}" if counted and row.n else None,
        "standard_error": round(standard_error(row.value, row.n), 4) if row.unit == "share" and row.n else None,
        "conflict": _values(same) or None,
        "source_kind": row.source_kind,
        "source": row.source,
        "note": row.note,
    }


def _values(same: Sequence[Published]) -> str:
    """``0.720 (table1, table2); 0.780 (group_size)``."""
    tables: dict[Decimal, list[str]] = defaultdict(list)
    for row in same:
        tables[row.value].append(row.table)
    return "; ".join(f"{value} ({', '.join(sorted(names))})" for value, names in sorted(tables.items()))


def summary(rows: Sequence[Row]) -> dict[str, int]:
    """Counts over audited rows; a quantity in conflict counts once however often it was published."""
    quantities = ("backbone", "benchmark", "method", "setting", "metric")
    return {
        "cells": len(rows),
        "checked": sum(row["is_count"] is not None for row in rows),
        "impossible": sum(row["is_count"] is False for row in rows),
        "in_conflict": sum(row["conflict"] is not None for row in rows),
        "quantities_in_conflict": len({tuple(row[k] for k in quantities) for row in rows if row["conflict"]}),
    }


def render(rows: Sequence[Row]) -> RenderableType:
    """For a terminal: every cell, then the counts a table and in all."""
    shown = Table(
        title="Published numbers",
        caption="k/n: whether a pass over the stated n tasks can give the printed digits, rounded or truncated; "
        "error: binomial standard error of such a pass, for rewards with partial credit at most that",
    )
    for column in ("table", "backbone", "benchmark", "method", "metric", "value", "k/n", "error", "conflict", "source"):
        shown.add_column(column, justify="right" if column in ("value", "k/n", "error") else "left")
    for row in rows:
        label = f"{row['method']} ({row['setting']})" if row["setting"] else row["method"]
        place = (row["table"], row["backbone"], row["benchmark"], label, row["metric"], row["value"])
        error = "" if row["standard_error"] is None else f"{row['standard_error']:.3f}"
        shown.add_row(*place, _verdict(row), error, row["conflict"] or "", row["source_kind"])
    sources = sorted({f"{row['source_kind']}: {row['source']}" for row in rows})
    return Group(shown, _counts(rows), "Sources\n" + "\n".join(sources))


def _verdict(row: Row) -> str:
    if row["is_count"] is None:
        return ""
    return str(row["nearest"]) if row["is_count"] else f"not {row['nearest']}"


def _counts(rows: Sequence[Row]) -> Table:
    shown = Table(title="Summary", caption="quantities in conflict: published with different values, each counted once")
    tables = list(dict.fromkeys(row["table"] for row in rows))
    parts = {name: [row for row in rows if row["table"] == name] for name in tables} | {"all": rows}
    for column in ("table", *(key.replace("_", " ") for key in summary(rows))):
        shown.add_column(column, justify="left" if column == "table" else "right")
    for name, part in parts.items():
        shown.add_row(name, *map(str, summary(part).values()))
    return shown
