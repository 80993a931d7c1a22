"""Paired comparisons in tables: their columns in CSV files, and their cells in print.

Pairs are runs of one seed on the same tasks; a table's p-values are Holm-corrected together
(r3l.stats.comparison).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from r3l.report.table import Cell
from r3l.stats.comparison import Comparison
from r3l.stats.power import ALPHA, POWER

TEST = f"two-sided {100 * ALPHA:.0f} %, power {100 * POWER:.0f} %"
MDE = "MDE"  # the column in print
MDE_NOTE = (
    f"{MDE}: minimum detectable effect of so many seeds (paired t-test, {TEST}, from the standard "
    "deviation of the differences over seeds), in brackets with Holm's correction over this table; no "
    "spread: all seeds differ alike"
)


def paired_columns(comparison: Comparison) -> dict[str, Any]:
    """The CSV columns of a paired comparison, its interval apart (r3l.report.scores.interval_columns)."""
    return {
        "probability_of_improvement": comparison.effect.probability_of_improvement,
        "pairs": comparison.effect.seeds,
        "p_value": comparison.effect.p_value,
        "p_holm": comparison.p_adjusted,
        "spread": comparison.effect.deviation,
        "mde": comparison.mde,
        "mde_holm": comparison.mde_adjusted,
    }


def p_cell(p: float | None) -> Cell | None:
    """A p-value in print. It is never shown as 0, which no p-value is."""
    return None if p is None else Cell("< 0.001" if p < 0.001 else f"{p:.3f}", p)


def mde_text(comparison: Comparison | None) -> str:
    """``0.058 (0.112)``: alone, and with the correction over the table; empty without a test."""
    if comparison is None or comparison.p_adjusted is None:
        return ""
    if comparison.mde is None:
        return "no spread"
    return f"{_size(comparison.mde)} ({_size(comparison.mde_adjusted)})"


def mde_range(comparisons: Sequence[Comparison]) -> str:
    """``0.014 to 0.135 (0.047 to 0.454)`` of several comparisons; empty if none has an MDE."""

    def ends(sizes: list[float]) -> str:
        low, high = _size(min(sizes)), _size(max(sizes))
        return low if low == high else f"{low} to {high}"

    alone = [one.mde for one in comparisons if one.mde is not None]
    corrected = [one.mde_adjusted for one in comparisons if one.mde_adjusted is not None]
    return f"{ends(alone)} ({ends(corrected)})" if alone else ""


def _size(difference: float | None) -> str:
    """Success rates differ by 1 at most."""
    return "" if difference is None else f"{difference:.3f}" if difference <= 1 else "> 1"
