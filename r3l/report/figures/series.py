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
    """The curve of one seed: ``x`` and ``y`` after each of the ``updates`` at which y is known."""

    updates: Integers
    x: Floats
    y: Floats

    def at(self, updates: Integers) -> tuple[Floats, Floats]:
        """(x, y) after the given updates, all of which must be known."""
        shared = np.isin(self.updates, updates)
        return self.x[shared], self.y[shared]


@dataclass(frozen=True)
class Band:
    """Means over seeds, and ``low`` and ``high``, their 95 % t-interval; None below MIN_SEEDS seeds."""

    x: Floats
    mean: Floats
    low: Floats | None
    high: Floats | None


def mean_of(key: str) -> Value:
    """A function that gives the mean of metric ``key`` over a window, of the updates that recorded it.

    Not defined where the window's last update did not record it.
    """

    def value(rows: Sequence[Metrics]) -> float | None:
        return float(np.mean([row[key] for row in rows if key in row])) if key in rows[-1] else None

    return value


class WindowSums(Mapping[str, float]):
    """Sums of each count over several updates, as a mapping. A sum is computed when it is read."""

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
    """A function that gives ``quantity`` of the counts of a window of updates, added up.

    So updates with more rollouts or retries weigh more.
    """
    return lambda rows: quantity(WindowSums(rows))


def rate_of(name: str) -> Value:
    """A function that gives the rate ``name`` of r3l.runs.metrics from the counts of a window, added up."""
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
    """``value`` at each update, of the window that ends there; ``window``: its number of updates.

    None at updates where it is not defined.
    """
    return [value(metrics[max(0, k - window) : k]) for k in range(1, len(metrics) + 1)]


def curve(
    metrics: Sequence[Metrics], values: Sequence[float | None], advance: Advance = updates
) -> Curve | None:
    """One seed's ``values`` against x, the running sum of ``advance`` over updates; None without a value."""
    xs = np.cumsum([advance(row) for row in metrics])
    defined = np.array([k for k, y in enumerate(values) if y is not None], dtype=np.int64)
    if not len(defined):
        return None
    return Curve(defined + 1, xs[defined], np.array([values[k] for k in defined], dtype=float))


def band(curves: Sequence[Curve]) -> Band:
    """Mean and interval over ``curves``, at the updates at which every seed has a value.

    ``x`` is a mean over seeds too: so seeds are compared after equally many updates, even if x is tokens or
    time, which differ between them.
    """
    common = reduce(np.intersect1d, [c.updates for c in curves])
    x_S_U, y_S_U = np.array([c.at(common) for c in curves]).swapaxes(0, 1)
    x, mean = x_S_U.mean(axis=0), y_S_U.mean(axis=0)
    if len(curves) < MIN_SEEDS:
        return Band(x, mean, None, None)
    half = t_half_width(y_S_U)
    return Band(x, mean, mean - half, mean + half)
