"""What an estimated effect says: ahead, behind, equivalent within a margin, or inconclusive.

Equivalence is shown by two one-sided t-tests (TOST; Schuirmann 1987), each at 5 %: both reject where the 90 % interval
lies inside the margin.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from r3l.evaluation.power import ALPHA, Goal, minimum_detectable_effect, power_of
from r3l.evaluation.statistics import LEVEL

AHEAD, BEHIND, EQUIVALENT, INCONCLUSIVE = "ahead", "behind", "equivalent", "inconclusive"


@dataclass(frozen=True)
class Estimate:
    """An effect with its standard ``error``. ``freedom``: seeds minus 1; infinite where tasks were resampled, whose
    bootstrap interval is read as a normal one."""

    mean: float
    error: float
    freedom: float = np.inf

    @classmethod
    def of_seeds(cls, values_S: ArrayLike) -> Estimate:
        """Of one value a seed, at least two."""
        values = np.asarray(values_S, dtype=np.float64)
        error = float(values.std(ddof=1) / np.sqrt(len(values))) if np.ptp(values) > 1e-12 else 0.0
        return cls(float(values.mean()), error, len(values) - 1)

    @classmethod
    def of_bounds(cls, mean: float, low: float, high: float) -> Estimate:
        """Of the bounds of a 95 % interval over tasks."""
        return cls(mean, (high - low) / (2 * float(stats.norm.ppf((1 + LEVEL) / 2))))

    def bounds(self, level: float = LEVEL) -> tuple[float, float]:
        """The interval of this level."""
        half = float(stats.t.ppf((1 + level) / 2, self.freedom)) * self.error
        return self.mean - half, self.mean + half

    @property
    def p_value(self) -> float:
        """Two-sided, of no effect. Without any spread: 1 if the effect is zero, else 0."""
        return 2 * self._above(abs(self.mean))

    def p_equivalent(self, margin: float) -> float:
        """The larger of the two one-sided tests, of an effect of ``margin`` or more on either side."""
        return self._above(margin - abs(self.mean))

    def mde(self, goal: Goal) -> float | None:
        """The effect that so many seeds or tasks detect; None without spread."""
        if not self.error:
            return None
        if np.isinf(self.freedom):
            return float(stats.norm.ppf(1 - goal.level / 2) + stats.norm.ppf(goal.power)) * self.error
        return minimum_detectable_effect(*self._deviation(), goal)

    def power(self, effect: float, goal: Goal) -> float:
        """The chance that so many seeds or tasks show a true ``effect``, on either side of 0."""
        if not self.error:
            return float(effect != 0)
        if np.isinf(self.freedom):
            critical, shift = float(stats.norm.ppf(1 - goal.level / 2)), effect / self.error
            return float(stats.norm.sf(critical - shift) + stats.norm.cdf(-critical - shift))
        deviation, seeds = self._deviation()
        return power_of(effect / deviation, seeds, goal.level)

    def _deviation(self) -> tuple[float, int]:
        """Of the values of the seeds, and how many these are."""
        seeds = int(self.freedom) + 1
        return self.error * float(np.sqrt(seeds)), seeds

    def _above(self, distance: float) -> float:
        """The chance of a mean so far above zero where the true one is zero."""
        if self.error:
            return float(stats.t.sf(distance / self.error, self.freedom))
        return 0.5 if distance == 0 else float(distance < 0)


def verdict(estimate: Estimate, p_corrected: float, margin: float | None) -> str:
    """Within ``margin`` an effect is equivalent even where it is shown to differ from zero; None: no margin applies.

    ``p_corrected``: two-sided, after the correction over the family. Equivalence is tested for each effect alone.
    """
    if margin is not None and estimate.p_equivalent(margin) < ALPHA:
        return EQUIVALENT
    if p_corrected < ALPHA:
        return AHEAD if estimate.mean > 0 else BEHIND
    return INCONCLUSIVE
