"""What can be checked of published numbers without running anything: granularity, binomial noise, contradictions."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from decimal import Decimal

from r3l.report.published.data import Published, Quantity
from r3l.report.rows import LongRow
from r3l.report.table import Cell, Column, Row, Table, table


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
    by_quantity: dict[Quantity, list[Published]] = defaultdict(list)
    for row in rows:
        by_quantity[row.quantity].append(row)
    return {quantity: same for quantity, same in by_quantity.items() if len({row.value for row in same}) > 1}


def check(rows: Sequence[Published], against: Sequence[Published] | None = None) -> list[LongRow]:
    """``rows`` with their checks; conflicts are looked for in ``against``, by default the same rows.

    ``is_count`` is None where the number is no share of tasks that are solved or not, or their number is not stated.
    """
    known = conflicts(rows if against is None else against)
    return [_check(row, known.get(row.quantity, [])) for row in rows]


def _check(row: Published, same: Sequence[Published]) -> LongRow:
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


def summary(rows: Sequence[LongRow]) -> dict[str, int]:
    """Counts over audited rows; a quantity in conflict counts once however often it was published."""
    quantities = ("backbone", "benchmark", "method", "setting", "metric")
    return {
        "cells": len(rows),
        "checked": sum(row["is_count"] is not None for row in rows),
        "impossible": sum(row["is_count"] is False for row in rows),
        "in_conflict": sum(row["conflict"] is not None for row in rows),
        "quantities_in_conflict": len({tuple(row[k] for k in quantities) for row in rows if row["conflict"]}),
    }


def checks_table(rows: Sequence[LongRow]) -> Table:
    """Every cell."""
    cells = [_cells(row) for row in rows]
    return table(
        "Published numbers",
        [Column(name, right=name in ("value", "k/n", "error")) for name in cells[0]],
        cells,
        "k/n: whether a pass over the stated n tasks can give the printed digits, rounded or truncated; "
        "error: binomial standard error of such a pass, for rewards with partial credit at most that",
    )


def _cells(row: LongRow) -> Row:
    texts = {key: row[key] for key in ("table", "backbone", "benchmark", "method", "metric", "value")}
    texts["method"] += f" ({row['setting']})" if row["setting"] else ""
    texts["k/n"] = "" if row["is_count"] is None else f"{'' if row['is_count'] else 'not '}{row['nearest']}"
    texts["error"] = "" if row["standard_error"] is None else f"{row['standard_error']:.3f}"
    texts |= {"conflict": row["conflict"] or "", "source": row["source_kind"]}
    return {name: Cell(text) for name, text in texts.items()}


def summary_table(rows: Sequence[LongRow]) -> Table:
    """The counts of each table and of all."""
    tables = list(dict.fromkeys(row["table"] for row in rows))
    parts = {name: [row for row in rows if row["table"] == name] for name in tables} | {"all": rows}
    counts = {name: _counts(part) for name, part in parts.items()}
    return table(
        "Summary",
        [Column("table"), *(Column(name, right=True) for name in counts["all"])],
        [{"table": Cell(name)} | cells for name, cells in counts.items()],
        "quantities in conflict: published with different values, each counted once",
    )


def _counts(rows: Sequence[LongRow]) -> Row:
    return {key.replace("_", " "): Cell(str(count)) for key, count in summary(rows).items()}


def sources(rows: Sequence[LongRow]) -> list[str]:
    """Where the numbers stand."""
    return sorted({f"{row['source_kind']}: {row['source']}" for row in rows})
