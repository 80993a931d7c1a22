"""A straight line through a few comparisons, and what it predicts for the next one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import stdtr, stdtrit

from r3l.stats.intervals import CONFIDENCE, finite

MIN_POINTS = 4  # of a line with an interval: two degrees of freedom


@dataclass(frozen=True)
class Prediction:
    """A predicted value, and the interval that has a new value with probability CONFIDENCE (95 %)."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Line:
    """Least-squares line y = intercept + slope * x through ``count`` points.

    ``deviation``: standard deviation of the residuals, with count - 2 degrees of freedom. ``centre`` and
    ``squares``: mean of x, and the sum of squared differences from it.
    """

    intercept: float
    slope: float
    deviation: float
    count: int
    centre: float
    squares: float

    @classmethod
    def through(cls, x_N: ArrayLike, y_N: ArrayLike) -> Line:
        """Fit the line by least squares to N points.

        Raises ValueError for fewer than MIN_POINTS (4) points, if all x are equal, for values that are not
        finite, and if there are not as many x as y.
        """
        x = finite(x_N, 1)
        y = finite(y_N, 1)
        squares = float(((x - x.mean()) ** 2).sum())
        if len(x) != len(y) or len(x) < MIN_POINTS or not squares:
            raise ValueError(f"a line needs {MIN_POINTS} points or more with different x, found {len(x)}")
        slope = float(((x - x.mean()) * (y - y.mean())).sum()) / squares
        intercept = float(y.mean()) - slope * float(x.mean())
        residuals = y - intercept - slope * x
        deviation = math.sqrt(float((residuals**2).sum()) / (len(x) - 2))
        return cls(intercept, slope, deviation, len(x), float(x.mean()), squares)

    def at(self, x: float) -> Prediction:
        """The value of y predicted at ``x``, with the interval of one new observation there.

        That is wider than the interval of the line itself.
        """
        value = self.intercept + self.slope * x
        error = self.deviation * math.sqrt(1 + 1 / self.count + (x - self.centre) ** 2 / self.squares)
        half = self._quantile * error
        return Prediction(value, value - half, value + half)

    @property
    def slope_bounds(self) -> tuple[float, float]:
        """95 % interval (CONFIDENCE) of the slope, by Student's t with count - 2 degrees of freedom."""
        half = self._quantile * self.deviation / math.sqrt(self.squares)
        return self.slope - half, self.slope + half

    @property
    def p_value(self) -> float:
        """Two-sided p-value of the test that the slope is 0.

        It is computed by Student's t with count - 2 degrees of freedom. If all points are on the line, it is
        0, or 1 for a slope of 0.
        """
        if not self.deviation:
            return 0.0 if self.slope else 1.0
        statistic = abs(self.slope) * math.sqrt(self.squares) / self.deviation
        return float(2 * stdtr(self.count - 2, -statistic))

    @property
    def _quantile(self) -> float:
        return float(stdtrit(self.count - 2, (1 + CONFIDENCE) / 2))


def gives_line(x_N: Sequence[float]) -> bool:
    """True if :meth:`Line.through` fits a line at ``x_N``: at least MIN_POINTS (4) values, not all equal."""
    return len(x_N) >= MIN_POINTS and len(set(x_N)) > 1


def slope_within(x_N: Sequence[float], y_N: Sequence[float], groups_N: Sequence[str]) -> float:
    """Least-squares slope of y over x, one for all N points, if each group has an intercept of its own.

    ``groups_N``: name of each point's group. NaN if x is the same within each group.
    """
    frame = pd.DataFrame({"x": x_N, "y": y_N})
    within = frame - frame.groupby(list(groups_N)).transform("mean")
    return float((within.x * within.y).sum() / (within.x**2).sum())


def leave_one_out(x_N: Sequence[float], y_N: Sequence[float]) -> list[Prediction]:
    """The prediction of each point's y by the line through the other points, in the order of the points.

    Raises ValueError for MIN_POINTS (4) points or fewer, for another number of x than of y, or as
    :meth:`Line.through` of the others.
    """
    x = np.asarray(x_N, dtype=float)
    y = np.asarray(y_N, dtype=float)
    if len(x) != len(y) or len(x) <= MIN_POINTS:
        raise ValueError(
            f"leave-one-out needs {MIN_POINTS + 1} points or more, each with x and y, found {len(x)} and "
            f"{len(y)}"
        )
    others = [np.arange(len(x)) != k for k in range(len(x))]
    return [Line.through(x[rest], y[rest]).at(float(x[k])) for k, rest in enumerate(others)]
