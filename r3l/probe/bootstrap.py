"""Measures of a probe's attempts, each with an interval over tasks.

Attempts at one task are alike, so intervals come from resampling tasks
(r3l.stats.intervals.cluster_bootstrap): the same for shares, means, ratios of two rates and paired
differences. A share that is 0 or 1 in every task has no spread to resample; its interval is Wilson's, and
for a difference with such a share it is Newcombe's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from r3l.core.seeds import generator
from r3l.probe.attempts import SEED_WORD
from r3l.stats.intervals import Floats, cluster_bootstrap, newcombe_bounds, wilson_bounds


@dataclass(frozen=True)
class Measure:
    """One number of a probe, with its 95 % interval (``low`` to ``high``) over tasks.

    ``value`` is None if nothing could be counted, and if it is not finite. ``n``: observations, of ``tasks``
    tasks. A bound is None if it does not exist: a ratio whose denominator may be 0 has no upper bound.
    ``interval``: the method that gave it, in words; '' without one, and both bounds are then None.
    """

    value: float | None
    n: int
    tasks: int
    low: float | None = None
    high: float | None = None
    interval: str = ""


def mean(table: pd.DataFrame, column: str) -> Measure:
    """Mean of ``column`` over the rows in which it is not NaN, with a bootstrap interval over tasks.

    ``table``: one row per attempt, with its ``task``. The value is None if no row counts; one task has no
    interval.
    """
    return resampled(table, [column], lambda sums, counts: sums[..., 0] / counts[..., 0])


def share(table: pd.DataFrame, column: str) -> Measure:
    """Share of 1 in ``column`` among the attempts for which it is not NaN, with an interval.

    The interval is from the bootstrap over tasks, or Wilson's if the share is 0 or 1 in every task.
    """
    return bounded_share(mean(table, column))


def bounded_share(measure: Measure) -> Measure:
    """``measure``, a share, with Wilson's interval if its bootstrap interval is missing or a single point.

    The bootstrap gives a point if the share is 0 or 1, the same in every task. Any other measure is returned
    unchanged.
    """
    if measure.value not in (0.0, 1.0) or measure.low != measure.high:
        return measure
    low, high = wilson_bounds(measure.value, measure.tasks)
    return replace(measure, low=low, high=high, interval="Wilson over tasks")


def paired_difference(table: pd.DataFrame, column: str) -> Measure:
    """Mean of ``column``, differences of two successes (-1, 0 or 1), with a bootstrap interval over tasks.

    If all tasks have the same difference, a bootstrap interval has no width. The bounds are then the mean
    minus and plus Wilson's upper bound for the share of an event that no task showed, limited to -1 and 1.
    """
    measure = mean(table, column)
    if measure.value not in (-1.0, 0.0, 1.0) or measure.low != measure.high:
        return measure
    unseen = wilson_bounds(0, measure.tasks)[1]
    low = max(-1.0, measure.value - unseen)
    high = min(1.0, measure.value + unseen)
    return replace(measure, low=low, high=high, interval="Wilson over tasks")


def ratio(table: pd.DataFrame, upper: str, lower: str) -> Measure:
    """Mean of column ``upper`` divided by the mean of column ``lower``, with a bootstrap interval over tasks.

    Each mean is over the attempts that have the column. The value is None if no attempt has it or the second
    mean is 0.
    """
    return resampled(table, [upper, lower], lambda s, c: (s[..., 0] / c[..., 0]) / (s[..., 1] / c[..., 1]))


def difference(table: pd.DataFrame, first: str, second: str) -> Measure:
    """Difference of two shares: the mean of column ``first`` minus the mean of column ``second``.

    Each mean is over the attempts that have the column. The interval is from the bootstrap over tasks, or
    Newcombe's if one of the shares is 0 or 1, so that resampling does not move it. The value is None if no
    attempt has one of the columns.
    """
    found = resampled(table, [first, second], lambda s, c: s[..., 0] / c[..., 0] - s[..., 1] / c[..., 1])
    one = mean(table, first)
    other = mean(table, second)
    if found.low is None or one.value is None or other.value is None:
        return found
    if not {one.value, other.value} & {0.0, 1.0}:
        return found
    low, high = newcombe_bounds(one.value, one.tasks, other.value, other.tasks)
    return replace(found, low=low, high=high, interval="Newcombe over tasks")


def resampled(
    table: pd.DataFrame, columns: Sequence[str], combine: Callable[[Floats, Floats], Floats]
) -> Measure:
    """A measure computed from sums of table columns, with a 95 % bootstrap interval over tasks.

    ``table``: one row per attempt, with its ``task``; NaN: the attempt does not count for the column.
    ``combine(sums, counts)``: the measure from the sums and the counts of ``columns`` (last axis), also for
    arrays of draws (other axes). ``n`` of the result is the larger number of attempts that count for one of
    the columns, ``tasks`` the number of their tasks; without any, or if it is not finite, the value is None.
    One task has no interval.
    """
    tasks, task_A = np.unique(table.task.to_numpy(str), return_inverse=True)
    values_A_C = table[[*columns]].to_numpy(float)
    counted_A_C = ~np.isnan(values_A_C)
    sums_T_C, counts_T_C = np.zeros((2, len(tasks), len(columns)))
    np.add.at(sums_T_C, task_A, np.where(counted_A_C, values_A_C, 0.0))
    np.add.at(counts_T_C, task_A, counted_A_C)

    n = int(counts_T_C.sum(axis=0).max(initial=0))
    seen = int(counts_T_C.any(axis=1).sum())
    if not n:
        return Measure(None, 0, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = float(combine(sums_T_C.sum(axis=0), counts_T_C.sum(axis=0)))
    bounds = cluster_bootstrap(sums_T_C, counts_T_C, combine, generator(SEED_WORD, "bootstrap"))
    if bounds is None:
        return Measure(_finite(value), n, seen)
    low, high = bounds
    return Measure(_finite(value), n, seen, _finite(low), _finite(high), "bootstrap over tasks")


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
