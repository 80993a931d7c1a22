"""What can be checked of published numbers without running anything: multiples of 1/n, contradictions."""

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
    """Whether some k/n, rounded (halves either way) or truncated to the digits of ``value``, is ``value``.

    So one pass over ``n`` tasks that are solved or not can have been printed as ``value``; if not, something was
    averaged, smoothed, or measured on another number of tasks. Exact arithmetic: in units u of the last digit,
    k/n is printed as v if v - u/2 <= k/n <= v + u/2 (rounded) or v <= k/n < v + u (truncated).
    """
    exponent = value.as_tuple().exponent
    unit = Decimal(1).scaleb(exponent if isinstance(exponent, int) else 0)
    low, below = (value - unit / 2) * n, (value + unit) * n
    return math.ceil(max(low, Decimal(0))) < min(below, Decimal(n + 1))


def conflicts(rows: Sequence[Published]) -> dict[Quantity, list[Published]]:
    """Quantities that were published with different values, and all their rows."""
    by_quantity: dict[Quantity, list[Published]] = defaultdict(list)
    for row in rows:
        by_quantity[row.quantity].append(row)
    return {quantity: same for quantity, same in by_quantity.items() if len({row.value for row in same}) > 1}


@dataclass(frozen=True)
class Check:
    """A published number; ``is_count`` is None where it is no share of tasks that are solved or not, or their number
    is not stated. ``conflict``: the values of the same quantity, and their tables."""

    number: Published
    is_count: bool | None
    conflict: str | None

    def flat(self) -> dict[str, Any]:
        number, checks = self.number.model_dump(mode="json"), vars(self)
        return number | {key: value for key, value in checks.items() if key != "number"}


def check(rows: Sequence[Published], known: Sequence[Published] | None = None) -> list[Check]:
    """``rows`` with their checks; conflicts are looked for in ``known``, by default the same rows."""
    conflicting = conflicts(rows if known is None else known)
    return [_check(row, conflicting.get(row.quantity, [])) for row in rows]


def _check(row: Published, same: Sequence[Published]) -> Check:
    counted = row.n is not None and row.unit == "share" and row.metric != "reward"
    return Check(
        row,
        is_count(row.value, row.n) if counted and row.n else None,
        _values(same) or None,
    )


def _values(same: Sequence[Published]) -> str:
    """``0.720 (table1, table2); 0.780 (group_size)``."""
    tables: dict[Decimal, list[str]] = defaultdict(list)
    for row in same:
        tables[row.value].append(row.table)
    return "; ".join(f"{value} ({', '.join(sorted(names))})" for value, names in sorted(tables.items()))


def summary(rows: Sequence[Check]) -> dict[str, int]:
    """Counts; a quantity in conflict counts once however often it was published."""
    return {
        "cells": len(rows),
        "checked": sum(row.is_count is not None for row in rows),
        "impossible": sum(row.is_count is False for row in rows),
        "in_conflict": sum(row.conflict is not None for row in rows),
        "quantities_in_conflict": len({row.number.quantity for row in rows if row.conflict}),
    }


def summary_table(rows: Sequence[Check]) -> Table:
    """The counts of each published table and of all; where the numbers stand."""
    parts = {name: [row for row in rows if row.number.table == name] for name in sorted({r.number.table for r in rows})}
    counts = [{"table": name} | summary(part) for name, part in (parts | {"all": list(rows)}).items()]
    columns = [Column("table"), *(Column(name, form="d") for name in counts[0] if name != "table")]
    return table(
        "Published numbers",
        columns,
        counts,
        "checked: scores over a stated number n of tasks; impossible: not a multiple of 1/n, rounded or truncated; "
        "quantities_in_conflict: published with different values, each counted once.",
        *sorted({f"{row.number.source_kind}: {row.number.source}" for row in rows}),
    )
