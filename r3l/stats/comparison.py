"""Comparisons: an estimated effect, its test with power and minimum detectable effect (MDE), and what a
family of effects shows after correction.

Every comparison uses ``compare_effects``: tables of scores, `r3l compare`, the registered comparisons and the
claims differ only in correction, alpha and margin. The test over seeds is the two-sided paired t-test. Its
power is that of Cohen, "Statistical Power Analysis for the Behavioral Sciences" (1988), chapter 2: 0.5, 0.8
and 1 standard deviations of the differences take 34, 15 and 10 pairs at level 5 % and power 80 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import chdtr, ndtr, ndtri, stdtr, stdtrit  # scipy.stats takes as long to import as pandas

from r3l.stats.intervals import CONFIDENCE, MIN_SEEDS, Interval, finite, t_interval

ALPHA = 0.05
POWER = 0.8
NOISE_Z = np.linspace(-9, 9, 4001)  # a grid of a standard normal variable, and its weights
DENSITY_Z = np.exp(-(NOISE_Z**2) / 2) / np.sqrt(2 * np.pi)
WEIGHTS_Z = DENSITY_Z / DENSITY_Z.sum()
# Holm bounds the chance of any false finding (family-wise error rate), Benjamini-Hochberg the expected share
# of false ones among the findings (false discovery rate).
Correction = Literal["holm", "benjamini-hochberg"]


class Verdict(StrEnum):
    """The result of a statistical judgement, as tables print it. Three functions give one:

    :func:`compare_effects` tests whether the difference of two methods is 0, two-sided at level alpha, with
    p-values corrected for the number of comparisons:

    - ``ahead``, ``behind``: the difference is significantly above or below 0
    - ``equivalent``: it is significantly smaller than the margin (if one is given), even if it also differs
      from 0. This is shown by two one-sided t-tests (TOST; Schuirmann 1987), uncorrected: the interval of
      confidence 1 - 2 alpha is inside the margin
    - ``inconclusive``: none of these; that no difference was shown does not mean that there is none
    - ``incomplete``: too few seeds for a test

    :func:`claim_verdict` judges a claim that a method is ahead:

    - ``supported``: it is significantly ahead
    - ``rejected``: it is significantly behind, or the smallest advantage that would matter is ruled out
    - ``inconclusive``: neither

    :func:`interval_verdict` compares a measured interval with a fixed number: ``ahead`` or ``behind`` if the
    interval is above or below it, ``inconclusive`` if it contains it, ``incomplete`` without an interval.
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
    """An estimated difference between two methods, over seeds or over tasks, and all that its test needs.

    ``error``: standard error of ``mean``; NaN for one seed and for two that differ alike, which have no test.
    Over seeds, ``values_S`` has one difference per seed, ``deviation`` is their standard deviation and
    ``freedom`` their number minus 1. ``deviation`` is None for one seed and for equal differences: neither
    tells how much other seeds would vary. Over tasks, ``freedom`` is infinite: a bootstrap interval is read as
    a normal one. ``probability_of_improvement``: P(a seed of the first method scores above one of the second),
    None if unknown. ``recorded_p_value``: p-value of an earlier test, which replaces the one from mean and
    error.
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
        """The effect of ours minus theirs over seeds: each seed's difference is its mean over tasks.

        Row k and column k of both matrices are the same seed and task. Its ``probability_of_improvement`` is
        Mann-Whitney's statistic, ties counting half, as in rliable (Agarwal et al. 2021, section 4.3).
        Raises ValueError for matrices of different shapes, or with values that are not finite.
        """
        ours = finite(ours_S_T, 2)
        theirs = finite(theirs_S_T, 2)
        if ours.shape != theirs.shape:
            raise ValueError(f"paired scores must have one shape, found {ours.shape} and {theirs.shape}")
        # Every seed of ours against every seed of theirs: this is not paired.
        ours_S_1 = ours.mean(axis=1)[:, None]
        theirs_1_S = theirs.mean(axis=1)[None, :]
        improvement = (ours_S_1 > theirs_1_S).mean() + (ours_S_1 == theirs_1_S).mean() / 2
        return cls.of_seeds((ours - theirs).mean(axis=1), float(improvement))

    @classmethod
    def of_seeds(cls, values_S: ArrayLike, improvement: float | None = None) -> Effect:
        """The mean of one value per seed with its standard error: 0 for equal values, NaN where none is known.

        Scores are shares of a few hundred tasks, so that two seeds often differ alike by chance: the error of
        equal values is NaN below MIN_SEEDS seeds, as that of a single value.

        ``improvement``: ``probability_of_improvement``. Raises ValueError for no or non-finite values.
        """
        values = finite(values_S, 1)
        unknown = len(values) < 2 or np.ptp(values) < 1e-12
        deviation = None if unknown else float(values.std(ddof=1))
        too_few = len(values) < 2 or (unknown and len(values) < MIN_SEEDS)
        error = math.nan if too_few else (deviation or 0.0) / math.sqrt(len(values))
        seeds = tuple(map(float, values))
        return cls(float(values.mean()), error, len(values) - 1, deviation, seeds, improvement)

    @classmethod
    def of_bounds(cls, mean: float, low: float, high: float) -> Effect:
        """An effect over tasks; its standard error is the width of its 95 % interval / (2 * 1.96)."""
        return cls(mean, (high - low) / (2 * float(ndtri((1 + CONFIDENCE) / 2))))

    @property
    def seeds(self) -> int:
        """Number of seeds; 0 for an effect over tasks."""
        return 0 if math.isinf(self.freedom) else int(self.freedom) + 1

    @property
    def interval(self) -> Interval:
        """The mean with its 95 % t-interval over seeds; its bounds are None below MIN_SEEDS seeds.

        Raises ValueError without ``values_S``, as over tasks.
        """
        return t_interval(self.values_S)

    def bounds(self, confidence: float = CONFIDENCE) -> tuple[float, float]:
        """Lower and upper end of the interval of this confidence; NaN for a single seed."""
        quantile = float(stdtrit(self.freedom, (1 + confidence) / 2))
        # In the order of t_interval, so that both give the same bits.
        half = quantile * self.error
        if self.deviation is not None:
            half = quantile * self.deviation / math.sqrt(self.seeds)
        return self.mean - half, self.mean + half

    @cached_property
    def p_value(self) -> float | None:
        """Two-sided p-value of the t-test that the true effect is 0; None without a standard error.

        A ``recorded_p_value`` replaces it. With a standard error of 0 (equal values of all seeds) it is 1 if
        the mean is 0, else 0.
        """
        if self.recorded_p_value is not None:
            return self.recorded_p_value
        return None if math.isnan(self.error) else 2 * self._tail(abs(self.mean))

    def p_equivalent(self, margin: float) -> float:
        """p-value of equivalence within +-``margin``: the larger one of two one-sided t-tests.

        NaN for one seed; ``recorded_p_value`` is not used.
        """
        return self._tail(margin - abs(self.mean))

    def _tail(self, distance: float) -> float:
        """P(an estimate at least ``distance`` above the true effect)."""
        if self.error:
            return float(stdtr(self.freedom, -distance / self.error))
        return 0.5 if distance == 0 else float(distance < 0)

    def mde(self, level: float = ALPHA, power: float = POWER) -> float | None:
        """Minimum detectable effect of a two-sided test at ``level``, in the unit of ``mean``.

        It is the true difference that the test shows with probability ``power``. None for one seed, and for a
        standard error of 0.
        """
        if self.deviation is not None:
            return minimum_detectable_effect(self.seeds, level, power) * self.deviation
        if not math.isinf(self.freedom) or not self.error:
            return None
        return float(ndtri(1 - level / 2) + ndtri(power)) * self.error

    def power(self, effect: float, level: float = ALPHA) -> float:
        """Probability that a two-sided test at ``level`` rejects if the true difference is ``effect``.

        The spread and the number of seeds are this estimate's. With a standard error of 0 it is 1, or 0 if
        ``effect`` is 0. NaN for one seed.
        """
        if self.deviation is not None:
            return power_of(effect / self.deviation, self.seeds, level)
        if not self.error:
            return float(effect != 0)
        critical = float(ndtri(1 - level / 2))
        shift = effect / self.error
        return float(ndtr(shift - critical) + ndtr(-critical - shift))


def power_of(standardised: float, seeds: int, level: float = ALPHA) -> float:
    """Power of the two-sided paired t-test of ``seeds`` (2 or more) pairs: probability that it rejects.

    The true mean difference is ``standardised`` standard deviations of the paired differences.
    t = (Z + delta) / sqrt(V / nu) with delta = standardised * sqrt(seeds), Z standard normal, V chi-square
    with nu = seeds - 1 degrees of freedom, so P(|t| > c) = E[P(V <= nu (Z + delta)^2 / c^2)]: the tail of
    the noncentral t distribution, here by the trapezoid rule over Z, since scipy's is NaN or wrong for large
    delta.
    """
    freedom = seeds - 1
    critical = stdtrit(freedom, 1 - level / 2)
    delta = standardised * np.sqrt(seeds)
    return float(WEIGHTS_Z @ chdtr(freedom, freedom * ((NOISE_Z + delta) / critical) ** 2))


@lru_cache(maxsize=4096)  # a table compares hundreds of rows, with few numbers of seeds at two levels
def minimum_detectable_effect(seeds: int, level: float = ALPHA, power: float = POWER) -> float:
    """The smallest true mean difference that ``seeds`` (2 or more) pairs show with probability ``power``.

    Its unit is the standard deviation of the paired differences over seeds. The test is two-sided at
    ``level``, which must be below ``power`` (else ValueError). Cached.
    """
    # Power grows with the difference: at ten critical values it is 1, so the root is bracketed.
    bound = float(stdtrit(seeds - 1, 1 - level / 2)) + 1
    reach = 10 * bound / np.sqrt(seeds)
    return float(brentq(lambda size: power_of(size, seeds, level) - power, 0, reach, xtol=1e-9))


@dataclass(frozen=True)
class Comparison:
    """One effect with its verdict, as one of a family of comparisons that are corrected together.

    ``p_adjusted``: the corrected p-value; None without a test. ``alpha``: level of the family's test;
    ``level``: bound that the correction leaves for an uncorrected p-value. ``mde``: minimum detectable effect
    of only this comparison, at alpha, None without a known spread; ``mde_adjusted``: the same at ``level``,
    None without a test as well.
    """

    effect: Effect
    p_adjusted: float | None
    alpha: float
    level: float
    verdict: Verdict
    mde: float | None
    mde_adjusted: float | None

    @property
    def significant(self) -> bool:
        """True if the effect is shown to differ from 0: corrected p-value below ``alpha``."""
        return self.p_adjusted is not None and self.p_adjusted < self.alpha


def compare_effects(
    effects: Sequence[Effect | None],
    *,
    correction: Correction = "holm",
    alpha: float = ALPHA,
    margin: float | None | Sequence[float | None] = None,
    tests: int | None = None,
) -> list[Comparison | None]:
    """Judge ``effects`` as one family, with p-values corrected together; an effect None stays None.

    ``margin``: largest difference that counts as equivalent, for all or one per effect; None: equivalence is
    not tested. ``correction``: ``holm`` or ``benjamini-hochberg``. ``tests``: planned number of comparisons;
    if fewer effects can be tested, each missing test counts with p = 1. Default: the number of effects that
    can be tested, which a smaller ``tests`` does not change. The result has the order of ``effects``; an
    effect of one seed has no test (verdict ``incomplete``).
    """
    margins = list(margin) if isinstance(margin, Sequence) else [margin] * len(effects)

    # One correction over every effect that has a test.
    tested = {k: one.p_value for k, one in enumerate(effects) if one is not None}
    p_values = {k: p for k, p in tested.items() if p is not None}
    untested = max(0, (tests or 0) - len(p_values))
    family = adjusted([*p_values.values(), *[1.0] * untested], correction)
    p_adjusted = dict(zip(p_values, family, strict=False))

    # MDE and power are those of one test at the level that the correction leaves it. Holm: that of the first
    # and strictest step. Benjamini-Hochberg: that of the step at which the procedure ended.
    steps = 1 if correction == "holm" else max(sum(p < alpha for p in family), 1)
    level = alpha * steps / max(len(family), 1)

    compared: list[Comparison | None] = []
    for k, effect in enumerate(effects):
        if effect is None:
            compared.append(None)
            continue
        p = p_adjusted.get(k)
        largest = margins[k]
        # Equivalence goes first: a difference may be significant and still too small to matter.
        if p is None:
            verdict = Verdict.INCOMPLETE
        elif largest is not None and effect.p_equivalent(largest) < alpha:
            verdict = Verdict.EQUIVALENT
        elif p < alpha:
            verdict = Verdict.AHEAD if effect.mean > 0 else Verdict.BEHIND
        else:
            verdict = Verdict.INCONCLUSIVE
        corrected = None if p is None else effect.mde(level)
        compared.append(Comparison(effect, p, alpha, level, verdict, effect.mde(alpha), corrected))
    return compared


def adjusted(p_values: Sequence[float], correction: Correction) -> list[float]:
    """Adjusted p-values of one family of m tests, in the given order; reject where one is below alpha.

    At most 1 each; [] for no test.

    Holm's step-down procedure (1979): the k-th smallest p-value times m - k + 1, made increasing.
    Benjamini and Hochberg's step-up procedure (1995): the k-th smallest times m / k, made increasing from the
    largest down.
    """
    order = np.argsort(p_values, kind="stable")
    sorted_p = np.asarray(p_values)[order]
    ranks = np.arange(1, len(order) + 1)
    if correction == "holm":
        stepped = np.maximum.accumulate(sorted_p * ranks[::-1])
    else:
        stepped = np.minimum.accumulate((sorted_p / (ranks / max(len(order), 1)))[::-1])[::-1]
    in_given_order = np.empty(len(order))
    in_given_order[order] = np.minimum(stepped, 1.0)
    return [float(p) for p in in_given_order]


def claim_verdict(comparison: Comparison, smallest: float) -> Verdict:
    """Judge the claim that an effect is above 0; ``smallest``: the smallest effect that would matter.

    - Supported: the effect is significantly above 0.
    - Rejected: it is significantly below 0, or its interval (confidence 1 - alpha, not corrected for several
      comparisons) is below ``smallest``.
    - Inconclusive: neither.
    """
    effect = comparison.effect
    if comparison.significant:
        return Verdict.SUPPORTED if effect.mean > 0 else Verdict.REJECTED
    # Without a spread over seeds the interval has no width, and excludes nothing.
    if effect.error > 0 and effect.bounds(1 - comparison.alpha)[1] < smallest:
        return Verdict.REJECTED
    return Verdict.INCONCLUSIVE


def interval_verdict(interval: Interval, number: float) -> Verdict:
    """Compare a measured interval with a fixed number, such as a published score.

    ``ahead`` or ``behind`` if all of the interval is above or below the number, ``inconclusive`` if it
    contains it, ``incomplete`` without an interval.
    """
    if interval.low is None or interval.high is None:
        return Verdict.INCOMPLETE
    if interval.low <= number <= interval.high:
        return Verdict.INCONCLUSIVE
    return Verdict.AHEAD if interval.low > number else Verdict.BEHIND
