"""Curves over training: what a seed's metrics give at every update, and their mean and band over seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from r3l.runs.metrics import GENERATED_TOKENS, RATES, step_seconds
from r3l.stats.intervals import MIN_SEEDS, t_half_width

WINDOW = 5  # updates; one update of the nano tier is too few tasks to be seen in a line
Metrics = Mapping[str, float]
Value = Callable[
    [Sequence[Metrics]], float | None
]  # of a window of updates, the last of them the present one
Advance = Callable[[Metrics], float]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Curve:
    """One seed: ``y`` and ``x`` after each of the ``updates`` that have a value."""

    updates: Integers
    x: Floats
    y: Floats

    def at(self, updates: Integers) -> tuple[Floats, Floats]:
        """(x, y) after ``updates``, all of which have a value."""
        shared = np.isin(self.updates, updates)
        return self.x[shared], self.y[shared]


@dataclass(frozen=True)
class Band:
    """Means over seeds; ``low`` and ``high``: the 95 % t-interval of ``mean``, None under MIN_SEEDS seeds."""

    x: Floats
    mean: Floats
    low: Floats | None
    high: Floats | None


def mean_of(key: str) -> Value:
    """The mean of a metric over the window, at updates that recorded it."""

    def value(rows: Sequence[Metrics]) -> float | None:
        return float(np.mean([row[key] for row in rows if key in row])) if key in rows[-1] else None

    return value


class WindowSums(Mapping[str, float]):
    """The counts of several updates added up. A quantity reads few of the hundred, so each is added when read."""

    def __init__(self, rows: Sequence[Metrics]) -> None:
        self.rows = rows

    def __getitem__(self, key: str) -> float:
        counts = [row[key] for row in self.rows if key in row]
        if not counts:
            raise KeyError(key)
        return sum(counts)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(key for row in self.rows for key in row))

    def __len__(self) -> int:
        return len(list(iter(self)))


def of_counts(quantity: Callable[[Metrics], float | None]) -> Value:
    """A quantity of the counts of the whole window together: steps with more rollouts, or retries, weigh
    more."""
    return lambda rows: quantity(WindowSums(rows))


def rate_of(name: str) -> Value:
    """A rate of r3l.runs.metrics, of the counts of the window."""
    (rate,) = [rate for rate in RATES if rate.name == name]
    return of_counts(rate.of)


def updates(row: Metrics) -> float:
    """The number of updates that a line of metrics adds to the horizontal axis: always 1."""
    return 1.0


def tokens(row: Metrics) -> float:
    """Generated tokens in thousands: rollouts, reflections, critiques and retries."""
    return row.get(GENERATED_TOKENS, 0.0) / 1000


def minutes(row: Metrics) -> float:
    """Minutes of rollout and update; start, checkpoints and evaluation are not counted."""
    return step_seconds(row) / 60


def values_of(metrics: Sequence[Metrics], value: Value, window: int = WINDOW) -> list[float | None]:
    """The running ``value`` at each update, of it and the ones before it in the window."""
    return [value(metrics[max(0, k - window) : k]) for k in range(1, len(metrics) + 1)]


def curve(
    metrics: Sequence[Metrics], values: Sequence[float | None], advance: Advance = updates
) -> Curve | None:
    """A seed's ``values`` against the running sum of ``advance``; None where no update has one."""
    xs = np.cumsum([advance(row) for row in metrics])
    defined = np.array([k for k, y in enumerate(values) if y is not None], dtype=np.int64)
    if not len(defined):
        return None
    return Curve(defined + 1, xs[defined], np.array([values[k] for k in defined], dtype=float))


def band(curves: Sequence[Curve]) -> Band:
    """Mean and band after the updates of which every seed has a value; ``x`` is a mean over seeds as well.

    So seeds are compared after equally many updates also where x is tokens or time, which differ between
    them.
    """
    common = reduce(np.intersect1d, [c.updates for c in curves])
    x_S_U, y_S_U = np.array([c.at(common) for c in curves]).swapaxes(0, 1)
    x, mean = x_S_U.mean(axis=0), y_S_U.mean(axis=0)
    if len(curves) < MIN_SEEDS:
        return Band(x, mean, None, None)
    half = t_half_width(y_S_U)
    return Band(x, mean, mean - half, mean + half)
