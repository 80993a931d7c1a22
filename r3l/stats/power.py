"""Power of a comparison: its minimum detectable effect (MDE), the seeds a difference takes, and when to stop.

The comparison is the two-sided paired t-test over seeds. Its power is that of Cohen, "Statistical Power
Analysis for the Behavioral Sciences" (1988), chapter 2: 0.5, 0.8 and 1 standard deviations of the
differences take 34, 15 and 10 pairs at level 5 % and power 80 %.

``deviation`` is the standard deviation of the paired differences over seeds, ``level`` the bound for one
p-value.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats
from scipy.optimize import brentq
from scipy.special import chdtr

from r3l.stats.intervals import CONFIDENCE

ALPHA, POWER = 0.05, 0.8
NOISE_Z = np.linspace(-9, 9, 4001)  # a grid of a standard normal variable, and its weights
WEIGHTS_Z = stats.norm.pdf(NOISE_Z) / stats.norm.pdf(NOISE_Z).sum()


@dataclass(frozen=True)
class PowerTarget:
    """The test that is planned: two-sided at ``alpha``, finding the difference with probability ``power``.

    ``comparisons``: size of the family that Holm's correction covers. Its first step, which decides where
    only one difference exists, tests at alpha / comparisons.
    """

    alpha: float = ALPHA
    power: float = POWER
    comparisons: int = 1

    @property
    def level(self) -> float:
        """The bound for the p-value of one comparison."""
        return self.alpha / self.comparisons


def spread(differences_S: ArrayLike) -> float | None:
    """Sample standard deviation over seeds of the differences (one per seed).

    None for one seed or equal differences: neither tells how much other seeds would vary.
    """
    values = np.asarray(differences_S, dtype=np.float64)
    return None if len(values) < 2 or np.ptp(values) < 1e-12 else float(values.std(ddof=1))


def spread_factors(seeds: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Bounds of the true standard deviation, as multiples of the estimate from ``seeds`` seeds.

    (n - 1) s^2 / sigma^2 of a normal sample has a chi-square distribution with n - 1 degrees of freedom.
    Five seeds give 0.6 to 2.9 times the estimate.
    """
    freedom = seeds - 1
    low, high = np.sqrt(freedom / stats.chi2.ppf([(1 + confidence) / 2, (1 - confidence) / 2], freedom))
    return float(low), float(high)


def power_of(standardised: float, seeds: int, level: float = ALPHA) -> float:
    """Probability that the test rejects if the true mean difference is ``standardised`` standard deviations.

    t = (Z + delta) / sqrt(V / nu) with delta = standardised * sqrt(seeds), Z standard normal, V chi-square
    with nu = seeds - 1 degrees of freedom, so P(|t| > c) = E[P(V <= nu (Z + delta)^2 / c^2)]: the tail of
    the noncentral t distribution, here by the trapezoid rule over Z, since scipy's is NaN or wrong for large
    delta.
    """
    freedom = seeds - 1
    critical = stats.t.ppf(1 - level / 2, freedom)
    delta = standardised * np.sqrt(seeds)
    return float(WEIGHTS_Z @ chdtr(freedom, freedom * ((NOISE_Z + delta) / critical) ** 2))


def minimum_detectable_effect(
    deviation: float, seeds: int, level: float = ALPHA, power: float = POWER
) -> float:
    """The smallest true mean difference that ``seeds`` pairs show with probability ``power``."""
    return _standardised_mde(seeds, level, power) * deviation


@lru_cache(maxsize=4096)  # a table compares hundreds of rows, with few numbers of seeds at two levels
def _standardised_mde(seeds: int, level: float, power: float) -> float:
    """The minimum detectable effect in standard deviations of the differences."""
    # Power grows with the difference: at ten critical values it is 1, so the root is bracketed.
    bound = float(stats.t.ppf(1 - level / 2, seeds - 1)) + 1
    reach = 10 * bound / np.sqrt(seeds)
    return float(brentq(lambda size: power_of(size, seeds, level) - power, 0, reach, xtol=1e-9))


def seeds_needed(deviation: float, difference: float, level: float = ALPHA, power: float = POWER) -> int:
    """The fewest seeds, at least 2, that show a true ``difference`` (not 0) with probability ``power``."""

    def enough(seeds: int) -> bool:
        return power_of(difference / deviation, seeds, level) >= power

    most = 2
    while not enough(most):
        most *= 2
    return bisect_left(range(most + 1), True, lo=2, key=enough)


@dataclass(frozen=True)
class StoppingRule:
    """Blocks of seeds until the minimum detectable effect is at most ``difference``, ``most`` seeds at most.

    The rule looks at the spread over seeds alone, never at the difference itself. It still stops more often
    where chance has made the spread small: in simulations with normal differences a test at 5 % after it
    errs in up to 7.5 % of all cases, one at ``alpha`` = 3 % in up to 4.8 %.
    """

    block: int = 5
    difference: float = 0.04
    most: int = 20
    alpha: float = 0.03

    def seeds_due(self, deviation: float | None, seeds: int) -> int:
        """How many more seeds to run after ``seeds``; 0: stop. ``deviation`` None: the spread is unknown."""
        if seeds < self.block:
            return self.block - seeds
        mde = None if deviation is None else minimum_detectable_effect(deviation, seeds, self.alpha)
        if mde is not None and mde <= self.difference:
            return 0
        return min(self.block, max(self.most - seeds, 0))
