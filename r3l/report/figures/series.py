"""Curves over training: what a seed's metrics give at every update, and their mean and band over seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from r3l.report.updates import window_sums
from r3l.runs.metrics import COLLECT_SECONDS, GENERATED_TOKENS, RATES, TRAIN_SECONDS
from r3l.stats.intervals import MIN_SEEDS, t_half_width

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Columns(Protocol):
    """Metrics of a training: ``columns[name]`` has a value for each of its ``updates``, NaN for none.

    ``columns.counts(name)`` has 0 for none.
    """

    updates: int

    def __getitem__(self, name: str, /) -> Floats: ...

    def counts(self, name: str, /) -> Floats: ...


Value = Callable[[Columns, int], Floats]  # over the window of updates that ends at each; NaN: not defined
Advance = Callable[[Columns], Floats]  # at each update


@dataclass(frozen=True)
class Curve:
    """The curve of one seed: ``x`` and ``y`` after each of the ``updates`` (from 1) at which y is known."""

    updates: Integers
    x: Floats
    y: Floats

    def at(self, updates: Integers) -> tuple[Floats, Floats]:
        """(x, y) after the given updates, all of which must be known."""
        places = np.searchsorted(self.updates, updates)
        return self.x[places], self.y[places]


@dataclass(frozen=True)
class Band:
    """Means over seeds at several updates; ``low`` and ``high``: bounds of the 95 % t-interval of the mean.

    They are None for fewer than MIN_SEEDS (3) seeds.
    """

    x: Floats
    mean: Floats
    low: Floats | None
    high: Floats | None


def mean_of(key: str) -> Value:
    """A function that gives the mean of metric ``key`` over the updates of a window that recorded it.

    It gives NaN where the window's last update did not record it.
    """

    def value(metrics: Columns, window: int) -> Floats:
        known_U = ~np.isnan(metrics[key])
        sum_U, count_U = (window_sums(counts, window) for counts in (metrics.counts(key), known_U))
        mean_U = np.full(metrics.updates, np.nan)
        np.divide(sum_U, count_U, out=mean_U, where=known_U)
        return mean_U

    return value


class WindowCounts(Mapping[str, float]):
    """Sums of each count over the ``window`` updates that end at update ``end`` (0, 1, ...), as a mapping.

    Counts that no update of the window recorded are missing (KeyError). Iterating gives only the counts that
    were looked up before.
    """

    def __init__(self, metrics: Columns, window: int) -> None:
        self.metrics = metrics
        self.window = window
        self.end = 0
        self._sums: dict[str, list[float | None]] = {}

    def __getitem__(self, key: str) -> float:
        if key not in self._sums:
            sums_U = window_sums(self.metrics.counts(key), self.window).tolist()
            recorded_U = window_sums(~np.isnan(self.metrics[key]), self.window)
            self._sums[key] = [n if k else None for n, k in zip(sums_U, recorded_U, strict=True)]
        if (total := self._sums[key][self.end]) is None:
            raise KeyError(key)
        return total

    def __iter__(self) -> Iterator[str]:
        return iter(self._sums)

    def __len__(self) -> int:
        return len(self._sums)


def of_counts(quantity: Callable[[Mapping[str, float]], float | None]) -> Value:
    """A function that gives ``quantity`` of the counts of a window of updates, added up.

    NaN where it is None. Updates with more rollouts or retries weigh more.
    """

    def value(metrics: Columns, window: int) -> Floats:
        counts = WindowCounts(metrics, window)
        values_U = np.full(metrics.updates, np.nan)
        for end in range(metrics.updates):
            counts.end = end
            if (found := quantity(counts)) is not None:
                values_U[end] = found
        return values_U

    return value


def rate_of(name: str) -> Value:
    """A function that gives the rate ``name`` of r3l.runs.metrics from the counts of a window, added up.

    Raises ValueError for a name that is not in RATES.
    """
    (rate,) = [rate for rate in RATES if rate.name == name]
    return of_counts(rate.of)


def updates(metrics: Columns) -> Floats:
    """An array of ones, shape (U,): how far each update moves along a horizontal axis of updates."""
    return np.ones(metrics.updates)


def tokens(metrics: Columns) -> Floats:
    """Generated tokens of each update in thousands, shape (U,): rollouts, retries, reflections, critiques."""
    return metrics.counts(GENERATED_TOKENS) / 1000


def minutes(metrics: Columns) -> Floats:
    """Minutes of collecting and of the update, shape (U,); not of start, checkpoints and evaluation."""
    return (metrics.counts(COLLECT_SECONDS) + metrics.counts(TRAIN_SECONDS)) / 60


def curve(metrics: Columns, values_U: Floats, advance: Advance = updates) -> Curve | None:
    """One seed's ``values_U`` against x, the running sum of ``advance`` over updates.

    By default x counts updates. Only the updates at which the value is defined (not NaN) are points; None
    without any.
    """
    defined = np.flatnonzero(~np.isnan(values_U))
    if not len(defined):
        return None
    return Curve(defined + 1, np.cumsum(advance(metrics))[defined], values_U[defined])


def band(curves: Sequence[Curve]) -> Band:
    """Mean and interval over ``curves`` (at least one), at the updates at which every seed has a value.

    ``x`` is a mean over seeds too: so seeds are compared after equally many updates, even if x is tokens or
    time, which differ between them.
    """
    known, seeds = np.unique(np.concatenate([c.updates for c in curves]), return_counts=True)
    common = known[seeds == len(curves)]
    x_S_U, y_S_U = np.array([c.at(common) for c in curves]).swapaxes(0, 1)
    x = x_S_U.mean(axis=0)
    mean = y_S_U.mean(axis=0)
    if len(curves) < MIN_SEEDS:
        return Band(x, mean, None, None)
    half = t_half_width(y_S_U)
    return Band(x, mean, mean - half, mean + half)
