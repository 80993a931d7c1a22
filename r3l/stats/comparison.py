"""Comparisons: an estimated effect, and what a family of effects shows after correction.

``compare`` is the one judge of differences: tables of scores, `r3l compare`, the registered comparisons and
the claims differ only in correction, alpha and margin.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from numpy.typing import ArrayLike
from scipy import stats

from r3l.stats.corrections import Correction, adjusted, level_of_one_test
from r3l.stats.intervals import CONFIDENCE, Interval, finite, t_interval
from r3l.stats.power import ALPHA, POWER, minimum_detectable_effect, power_of, spread


class Verdict(StrEnum):
    """The result of a comparison. Every table prints one of these words, or maps them where it prints.

    Of a difference (:func:`compare`), tested two-sided against 0 at alpha, after the family's correction:

    - ``ahead``: shown to be above 0
    - ``behind``: shown to be below 0
    - ``equivalent``: shown to lie within the margin on either side of 0, even if it is shown to differ from
      0. Two one-sided t-tests at alpha each (TOST; Schuirmann 1987), of each effect alone: both reject where
      the interval of confidence 1 - 2 alpha lies inside the margin. Only where a margin is given
    - ``inconclusive``: none of these. A difference that is not shown is not an equality
    - ``incomplete``: there is no test, for lack of seeds

    Of a claim that a method is ahead (:func:`claim_verdict`):

    - ``supported``: ahead
    - ``rejected``: behind, or the interval excludes the smallest advantage that would matter
    - ``inconclusive``: neither

    Of a measured interval and one fixed number (:func:`interval_verdict`): ``ahead`` or ``behind`` where all
    of the interval is above or below the number, ``inconclusive`` where it contains it.
    """

    AHEAD = "ahead"
    BEHIND = "behind"
    EQUIVALENT = "equivalent"
    INCONCLUSIVE = "inconclusive"
    INCOMPLETE = "incomplete"
    SUPPORTED = "supported"
    REJECTED = "rejected"


@dataclass(frozen=True)
class Effect:
    """An estimated difference, and all that its test needs.

    Over seeds ``freedom`` is their number minus 1 and ``deviation`` the standard deviation of one value per
    seed (None: unknown, see :func:`r3l.stats.power.spread`). Over tasks ``freedom`` is infinite: a bootstrap
    interval is read as a normal one. ``error``: standard error of ``mean``; NaN for one seed, which has no
    test. ``probability_of_improvement``: P(a seed of the first method scores above one of the second), where
    both are known. ``recorded_p_value``: p-value of a test that was made earlier, taken instead of one from
    mean and error.
    """

    mean: float
    error: float
    freedom: float = math.inf
    deviation: float | None = None
    values_S: tuple[float, ...] = ()
    probability_of_improvement: float | None = None
    recorded_p_value: float | None = None

    @classmethod
    def paired(cls, ours_S_T: ArrayLike, theirs_S_T: ArrayLike) -> Effect:
        """Ours minus theirs, paired by (seed, task): rows and columns of both are the same seeds and tasks.

        Raises ValueError for matrices of different shapes, or with values that are not finite.
        """
        ours, theirs = finite(ours_S_T, 2), finite(theirs_S_T, 2)
        if ours.shape != theirs.shape:
            raise ValueError(f"paired scores must have one shape, found {ours.shape} and {theirs.shape}")
        improvement = probability_of_improvement(ours.mean(axis=1), theirs.mean(axis=1))
        return cls.of_seeds((ours - theirs).mean(axis=1), improvement)

    @classmethod
    def of_seeds(cls, values_S: ArrayLike, improvement: float | None = None) -> Effect:
        """The mean of one value per seed. Equal values have the error 0, a single one none (NaN)."""
        values = finite(values_S, 1)
        deviation = spread(values)
        error = math.nan if len(values) < 2 else (deviation or 0.0) / math.sqrt(len(values))
        seeds = tuple(map(float, values))
        return cls(float(values.mean()), error, len(values) - 1, deviation, seeds, improvement)

    @classmethod
    def of_bounds(cls, mean: float, low: float, high: float) -> Effect:
        """A mean over tasks, from the bounds of its 95 % interval."""
        return cls(mean, (high - low) / (2 * float(stats.norm.ppf((1 + CONFIDENCE) / 2))))

    @property
    def seeds(self) -> int:
        """Number of seeds; 0 for an effect over tasks."""
        return 0 if math.isinf(self.freedom) else int(self.freedom) + 1

    @property
    def interval(self) -> Interval:
        """The 95 % interval over seeds, None below MIN_SEEDS seeds.

        Only where the seeds' values are known.
        """
        return t_interval(self.values_S)

    def bounds(self, confidence: float = CONFIDENCE) -> tuple[float, float]:
        """The interval of this confidence, from two seeds on."""
        quantile = float(stats.t.ppf((1 + confidence) / 2, self.freedom))
        # In the order of t_interval, so that both give the same bits.
        half = quantile * self.error
        if self.deviation is not None:
            half = quantile * self.deviation / math.sqrt(self.seeds)
        return self.mean - half, self.mean + half

    @cached_property
    def p_value(self) -> float | None:
        """Two-sided p-value against 0; None for one seed.

        Equal values of all seeds: 1 if they are 0, else 0.
        """
        if self.recorded_p_value is not None:
            return self.recorded_p_value
        return None if math.isnan(self.error) else 2 * self._tail(abs(self.mean))

    def p_equivalent(self, margin: float) -> float:
        """The larger p-value of the two one-sided tests against an effect of ``margin`` or more."""
        return self._tail(margin - abs(self.mean))

    def _tail(self, distance: float) -> float:
        """P(an estimate at least ``distance`` above the true effect)."""
        if self.error:
            return float(stats.t.sf(distance / self.error, self.freedom))
        return 0.5 if distance == 0 else float(distance < 0)

    def mde(self, level: float = ALPHA, power: float = POWER) -> float | None:
        """Minimum detectable effect of a test at ``level``; None without a known spread."""
        if self.deviation is not None:
            return minimum_detectable_effect(self.deviation, self.seeds, level, power)
        if not math.isinf(self.freedom) or not self.error:
            return None
        return float(stats.norm.ppf(1 - level / 2) + stats.norm.ppf(power)) * self.error

    def power(self, effect: float, level: float = ALPHA) -> float:
        """Probability that a test at ``level`` shows a true ``effect``, given this spread."""
        if self.deviation is not None:
            return power_of(effect / self.deviation, self.seeds, level)
        if not self.error:
            return float(effect != 0)
        critical, shift = float(stats.norm.ppf(1 - level / 2)), effect / self.error
        return float(stats.norm.sf(critical - shift) + stats.norm.cdf(-critical - shift))


def probability_of_improvement(ours_S: ArrayLike, theirs_S: ArrayLike) -> float:
    """P(a seed of ours scores above a seed of theirs), ties counting half.

    Mann-Whitney's statistic, as in rliable (Agarwal et al. 2021, section 4.3).
    """
    ours, theirs = finite(ours_S, 1), finite(theirs_S, 1)
    above = (ours[:, None] > theirs[None, :]).mean()
    ties = (ours[:, None] == theirs[None, :]).mean()
    return float(above + ties / 2)


@dataclass(frozen=True)
class Comparison:
    """One effect, judged within its family.

    ``p_adjusted``: after the correction; None without a test. ``alpha``: level of the family's test;
    ``level``: bound for one p-value, see :func:`r3l.stats.corrections.level_of_one_test`.
    """

    effect: Effect
    p_adjusted: float | None
    alpha: float
    level: float
    verdict: Verdict

    @property
    def significant(self) -> bool:
        """True if the effect is shown to differ from 0."""
        return self.p_adjusted is not None and self.p_adjusted < self.alpha

    @cached_property
    def mde(self) -> float | None:
        """Minimum detectable effect of this comparison alone, at alpha; None without a known spread."""
        return self.effect.mde(self.alpha)

    @cached_property
    def mde_adjusted(self) -> float | None:
        """Minimum detectable effect with the correction; None without a test or a known spread."""
        return None if self.p_adjusted is None else self.effect.mde(self.level)


def compare(
    effects: Sequence[Effect | None],
    *,
    correction: Correction = "holm",
    alpha: float = ALPHA,
    margin: float | None | Sequence[float | None] = None,
    tests: int | None = None,
) -> list[Comparison | None]:
    """Judge ``effects`` as one family; None stays None.

    ``margin``: half width of equivalence, for all or one per effect; None: equivalence is not tested.
    ``tests``: size of the family as it was planned, of which those without a test count with p = 1. By
    default the family is what can be tested.
    """
    margins = list(margin) if isinstance(margin, Sequence) else [margin] * len(effects)

    # One correction over every effect that has a test.
    tested = {k: one.p_value for k, one in enumerate(effects) if one is not None}
    p_values = {k: p for k, p in tested.items() if p is not None}
    untested = max(0, (tests or 0) - len(p_values))
    family = adjusted([*p_values.values(), *[1.0] * untested], correction)
    p_adjusted = dict(zip(p_values, family, strict=False))

    # MDE and power are those of one test at the level that the correction leaves it.
    rejected = sum(p < alpha for p in family)
    level = level_of_one_test(alpha, len(family), rejected, correction)

    compared: list[Comparison | None] = []
    for k, one in enumerate(effects):
        if one is None:
            compared.append(None)
            continue
        p = p_adjusted.get(k)
        compared.append(Comparison(one, p, alpha, level, _verdict(one, p, alpha, margins[k])))
    return compared


def _verdict(effect: Effect, p_adjusted: float | None, alpha: float, margin: float | None) -> Verdict:
    if p_adjusted is None:
        return Verdict.INCOMPLETE
    if margin is not None and effect.p_equivalent(margin) < alpha:
        return Verdict.EQUIVALENT
    if p_adjusted < alpha:
        return Verdict.AHEAD if effect.mean > 0 else Verdict.BEHIND
    return Verdict.INCONCLUSIVE


def claim_verdict(comparison: Comparison, smallest: float) -> Verdict:
    """Verdict on the claim that an effect is above 0, where less than ``smallest`` would not matter.

    The interval that can exclude ``smallest`` has the confidence 1 - alpha and is not corrected.
    """
    effect = comparison.effect
    if comparison.significant:
        return Verdict.SUPPORTED if effect.mean > 0 else Verdict.REJECTED
    # Without a spread over seeds the interval has no width, and excludes nothing.
    if effect.error > 0 and effect.bounds(1 - comparison.alpha)[1] < smallest:
        return Verdict.REJECTED
    return Verdict.INCONCLUSIVE


def interval_verdict(interval: Interval, number: float) -> Verdict:
    """A measured interval against one fixed number, such as a published score."""
    if interval.low is None or interval.high is None:
        return Verdict.INCOMPLETE
    if interval.low <= number <= interval.high:
        return Verdict.INCONCLUSIVE
    return Verdict.AHEAD if interval.low > number else Verdict.BEHIND
