"""Planning a comparison over seeds: how many a difference takes, and when to stop.

``deviation`` is the standard deviation of the paired differences over seeds, ``level`` the bound for one
p-value. r3l.stats.comparison has the test and its power.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaincinv

from r3l.stats.comparison import ALPHA, POWER, minimum_detectable_effect, power_of
from r3l.stats.intervals import CONFIDENCE


@dataclass(frozen=True)
class PowerTarget:
    """A planned test: two-sided at level ``alpha``, which finds the difference with probability ``power``.

    ``comparisons``: size of the family that Holm's correction covers. Its first and strictest step tests at
    alpha / comparisons.
    """

    alpha: float = ALPHA
    power: float = POWER
    comparisons: int = 1

    @property
    def level(self) -> float:
        """The bound for the p-value of one comparison, alpha / comparisons."""
        return self.alpha / self.comparisons


def spread_factors(seeds: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Bounds of the true standard deviation, as multiples of the estimate from ``seeds`` seeds.

    (n - 1) s^2 / sigma^2 of a normal sample has a chi-square distribution with n - 1 degrees of freedom.
    Five seeds give 0.6 to 2.9 times the estimate.
    """
    freedom = seeds - 1
    quantiles = [(1 + confidence) / 2, (1 - confidence) / 2]
    low, high = np.sqrt(freedom / (2 * gammaincinv(freedom / 2, quantiles)))  # of chi-square
    return float(low), float(high)


def seeds_needed(deviation: float, difference: float, level: float = ALPHA, power: float = POWER) -> int:
    """The fewest seeds, at least 2, that show a true ``difference`` (not 0) with probability ``power``.

    ``deviation``, above 0: of the paired differences over seeds. ``level``: bound for the p-value.
    """

    def enough(seeds: int) -> bool:
        return power_of(difference / deviation, seeds, level) >= power

    most = 2
    while not enough(most):
        most *= 2
    return bisect_left(range(most + 1), True, lo=2, key=enough)


@dataclass(frozen=True)
class StoppingRule:
    """Run seeds in blocks until the minimum detectable effect is at most ``difference``.

    ``block``: seeds of a block; ``most``: seeds after which no further block is run; ``alpha``: level of the
    test after it, two-sided.

    The rule looks only at the spread over seeds, never at the difference itself. It still stops more often
    where chance has made the spread small: in simulations with normal differences a test at 5 % after it
    errs in up to 7.5 % of all cases, one at ``alpha`` = 3 % in up to 4.8 %.
    """

    block: int = 5
    difference: float = 0.04
    most: int = 20
    alpha: float = 0.03

    def seeds_due(self, deviation: float | None, seeds: int) -> int:
        """How many more seeds to run after ``seeds``; 0: stop.

        The first block is completed first. After it, no seed is due if the minimum detectable effect,
        computed from ``deviation`` (over seeds; None: unknown), is at most ``difference``; otherwise a
        further block is, up to ``most`` seeds.
        """
        if seeds < self.block:
            return self.block - seeds
        mde = None if deviation is None else minimum_detectable_effect(seeds, self.alpha) * deviation
        if mde is not None and mde <= self.difference:
            return 0
        return min(self.block, max(self.most - seeds, 0))
