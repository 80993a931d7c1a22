"""Tests in print: p-values and minimum detectable effects (MDE)."""

from __future__ import annotations

from r3l.report.table import Cell
from r3l.stats.comparison import ALPHA, POWER, Comparison

TEST = f"two-sided {100 * ALPHA:.0f} %, power {100 * POWER:.0f} %"
MDE = "MDE"  # the column in print
MDE_NOTE = (
    f"{MDE}: minimum detectable effect of so many seeds (paired t-test, {TEST}, from the standard "
    "deviation of the differences over seeds), in brackets with Holm's correction over this table; no "
    "spread: all seeds differ alike"
)


def p_cell(p: float | None) -> Cell | None:
    """A p-value in print. It is never shown as 0, which no p-value is."""
    return None if p is None else Cell("< 0.001" if p < 0.001 else f"{p:.3f}", p)


def mde_text(*comparisons: Comparison) -> str:
    """Minimum detectable effect: ``0.058 (0.112)``, in brackets with the correction over the table.

    Empty without a test. Of several comparisons the smallest and the largest: ``0.014 to 0.135 (0.047 to
    0.454)``.
    """
    if all(one.p_adjusted is None for one in comparisons):
        return ""
    ranges = []
    for sizes in ([one.mde for one in comparisons], [one.mde_adjusted for one in comparisons]):
        known = [size for size in sizes if size is not None]
        if not known:
            return "no spread"
        # Success rates differ by 1 at most.
        ends = [f"{size:.3f}" if size <= 1 else "> 1" for size in (min(known), max(known))]
        ranges.append(" to ".join(dict.fromkeys(ends)))
    return f"{ranges[0]} ({ranges[1]})"
