"""What a paired comparison could have shown, and how many seeds it takes to show a wanted difference.

The comparison is the paired t-test over seeds (r3l.evaluation.statistics.paired_p_value), two-sided. Its power is that
of Cohen, "Statistical Power Analysis for the Behavioral Sciences" (1988), chapter 2; by it 0.5, 0.8 and 1 standard
deviations of the differences take 34, 15 and 10 pairs at 5 % and 80 %.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats
from scipy.optimize import brentq
from scipy.special import chdtr

from r3l.evaluation.statistics import LEVEL

ALPHA, POWER = 0.05, 0.8
NOISE_Z = np.linspace(-9, 9, 4001)  # a grid of a standard normal variable, and its weights
WEIGHTS_Z = stats.norm.pdf(NOISE_Z) / stats.norm.pdf(NOISE_Z).sum()


@dataclass(frozen=True)
class Goal:
    """How surely a difference is to be shown: a two-sided test at ``alpha`` finds it with probability ``power``.

    ``comparisons``: of the family that Holm corrects; its first step, and so the only difference of a table, is
    tested at alpha over their number.
    """

    alpha: float = ALPHA
    power: float = POWER
    comparisons: int = 1

    @property
    def level(self) -> float:
        """What the p-value of one comparison must stay below."""
        return self.alpha / self.comparisons


@dataclass(frozen=True)
class Spread:
    """Standard deviation of paired differences over ``seeds`` seeds, with its 95 % interval."""

    deviation: float
    low: float
    high: float
    seeds: int


def spread(differences_S: ArrayLike, level: float = LEVEL) -> Spread | None:
    """Of one difference a seed; None for one seed, and where all are equal, which says nothing of other seeds.

    The interval is that of a normal sample: (n - 1) s^2 / sigma^2 has a chi-square distribution with n - 1 degrees of
    freedom. With five seeds it reaches from 0.6 to 2.9 times the estimate.
    """
    values = np.asarray(differences_S, dtype=np.float64)
    if len(values) < 2 or np.ptp(values) < 1e-12:
        return None
    deviation, freedom = float(values.std(ddof=1)), len(values) - 1
    low, high = deviation * np.sqrt(freedom / stats.chi2.ppf([(1 + level) / 2, (1 - level) / 2], freedom))
    return Spread(deviation, float(low), float(high), len(values))


def power_of(standardised: float, seeds: int, level: float = ALPHA) -> float:
    """The probability that the test at ``level`` rejects, where the mean difference is ``standardised`` deviations.

    t = (Z + delta) / sqrt(V / nu) with delta = standardised * sqrt(seeds), Z standard normal, V chi-square with nu =
    seeds - 1 degrees of freedom, so P(|t| > c) = E[P(V <= nu (Z + delta)^2 / c^2)]: the tail of the noncentral t
    distribution, here by the trapezoid rule over Z, since scipy's is NaN or wrong for large delta.
    """
    freedom = seeds - 1
    critical = stats.t.ppf(1 - level / 2, freedom)
    delta = standardised * np.sqrt(seeds)
    return float(WEIGHTS_Z @ chdtr(freedom, freedom * ((NOISE_Z + delta) / critical) ** 2))


def smallest_difference(deviation: float, seeds: int, goal: Goal = Goal()) -> float:
    """The smallest true mean difference that ``seeds`` pairs with this standard deviation show as ``goal`` wants."""
    bound = float(stats.t.ppf(1 - goal.level / 2, seeds - 1)) + 1
    reach = 10 * bound / np.sqrt(seeds)  # ten critical values: shown for certain
    found = brentq(lambda size: power_of(size, seeds, goal.level) - goal.power, 0, reach, xtol=1e-9)
    return float(found) * deviation


def seeds_needed(deviation: float, difference: float, goal: Goal = Goal()) -> int:
    """The fewest seeds, at least 2, that show ``difference`` (not 0) as ``goal`` wants."""

    def enough(seeds: int) -> bool:
        return power_of(difference / deviation, seeds, goal.level) >= goal.power

    most = 2
    while not enough(most):
        most *= 2
    return bisect_left(range(most + 1), True, lo=2, key=enough)
