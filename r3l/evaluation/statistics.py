"""Intervals and comparisons. The unit of replication is the training seed; tasks are nested in seeds.

A mean carries Student's t-interval over seed means, whatever their number: in simulations with success rates of 50 to
200 tasks and a level of their own a seed it covers 94 to 96 % at 3, 5, 10 and 20 seeds, where a hierarchical percentile
bootstrap (seeds outside, tasks inside) covers anything from 90 to 99 %, by how much seeds differ.
Scores come as a matrix scores_S_T: one row a seed, one column a task of the same task set.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_confint

FEWEST = 3  # seeds of an interval; of two, Student's factor is 12.7, and the two values say more
FEW = 10  # seeds, under which a percentile bootstrap covers much less than it claims
LEVEL = 0.95
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """A mean over ``seeds`` seeds with its interval; under FEWEST seeds ``low`` and ``high`` are None, and ``points``
    holds the value of each.

    Bounds are not clipped: a t-interval of success rates may leave [0, 1], which says that seeds are too few.
    """

    mean: float
    low: float | None
    high: float | None
    seeds: int
    kind: str
    points: tuple[float, ...] = ()


def t_interval(values_S: ArrayLike, level: float = LEVEL) -> Interval:
    """Mean of one value a seed, with Student's t-interval. Raises ValueError for no or non-finite values."""
    values = _finite(values_S, 1)
    count = len(values)
    mean = float(values.mean())
    if count < FEWEST:
        kind = f"n/a ({count} seed{'' if count == 1 else 's'})"
        return Interval(mean, None, None, count, kind, tuple(map(float, values)))
    half = float(stats.t.ppf((1 + level) / 2, count - 1) * values.std(ddof=1) / np.sqrt(count))
    return Interval(mean, mean - half, mean + half, count, f"t, {count} seeds")


def wilson_interval(successes_T: ArrayLike, level: float = LEVEL) -> Interval:
    """Success rate of one run over its tasks, with Wilson's score interval: binomial noise, no seeds."""
    successes = _finite(successes_T, 1)
    rate = float(successes.mean())
    return Interval(rate, *wilson_bounds(rate, len(successes), level), 1, f"Wilson, {len(successes)} tasks")


def wilson_bounds(rate: float, count: float, level: float = LEVEL) -> tuple[float, float]:
    """Wilson's score interval of a ``rate`` seen in ``count`` trials (Wilson 1927; no continuity correction)."""
    low, high = proportion_confint(rate * count, count, alpha=1 - level, method="wilson")
    return float(low), float(high)


def interval(scores_S_T: ArrayLike, level: float = LEVEL) -> Interval:
    """Of the mean over seeds and tasks; seeds are what was replicated."""
    return t_interval(_finite(scores_S_T, 2).mean(axis=1), level)


def paired_difference(ours_S_T: ArrayLike, theirs_S_T: ArrayLike, level: float = LEVEL) -> Interval:
    """Ours minus theirs, paired by (seed, task): rows and columns of both are the same seeds and tasks."""
    ours, theirs = _finite(ours_S_T, 2), _finite(theirs_S_T, 2)
    if ours.shape != theirs.shape:
        raise ValueError(f"paired scores must have one shape, found {ours.shape} and {theirs.shape}")
    return interval(ours - theirs, level)


def paired_p_value(differences_S: ArrayLike) -> float | None:
    """Two-sided p of the paired t-test over seeds; None for one seed. Equal differences: 1 if zero, else 0."""
    values = _finite(differences_S, 1)
    if len(values) < 2:
        return None
    if np.ptp(values) == 0:
        return 1.0 if values[0] == 0 else 0.0
    return float(stats.ttest_1samp(values, 0.0).pvalue)


def probability_of_improvement(ours_S: ArrayLike, theirs_S: ArrayLike) -> float:
    """P(a seed of ours scores above a seed of theirs), ties counting half (Mann-Whitney; rliable)."""
    ours, theirs = _finite(ours_S, 1), _finite(theirs_S, 1)
    above = (ours[:, None] > theirs[None, :]).mean()
    ties = (ours[:, None] == theirs[None, :]).mean()
    return float(above + ties / 2)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjusted p-values of one family, in the given order: the family-wise error rate."""
    return _adjusted(p_values, "holm")


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Benjamini and Hochberg's adjusted p-values (1995) of one family, in the given order: the false discovery rate."""
    return _adjusted(p_values, "fdr_bh")


def _adjusted(p_values: Sequence[float], method: str) -> list[float]:
    if not p_values:
        return []
    frozen = gc.get_freeze_count()
    gc.freeze()  # statsmodels collects garbage at every call: half a second where torch and pandas are loaded
    try:
        return [float(p) for p in multipletests(p_values, method=method)[1]]
    finally:
        gc.unfreeze()
        if frozen:
            gc.freeze()


def _finite(values: ArrayLike, dimensions: int) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != dimensions or array.size == 0 or not np.isfinite(array).all():
        raise ValueError(f"expected finite values in {dimensions} dimension(s), found shape {array.shape}")
    return array


def performance_profile(scores_E_S: Sequence[ArrayLike], thresholds_X: ArrayLike) -> Floats:
    """The share of runs with a score above each threshold: mean over environments E of mean over seeds of 1[x > tau].

    Environments may have different numbers of seeds and weigh equally. Source: Agarwal et al. 2021, "Deep
    Reinforcement Learning at the Edge of the Statistical Precipice", section 4.2 (run-score distributions; rliable).
    """
    thresholds = _finite(thresholds_X, 1)
    profiles_E_X = np.array([(_finite(s, 1)[:, None] > thresholds).mean(axis=0) for s in scores_E_S])
    return np.asarray(profiles_E_X.mean(axis=0), dtype=np.float64)


def profile_band(
    scores_E_S: Sequence[ArrayLike],
    thresholds_X: ArrayLike,
    generator: np.random.Generator,
    resamples: int = 2000,
    level: float = LEVEL,
) -> tuple[Floats, Floats]:
    """(low, high) at each threshold: percentiles of profiles of seeds drawn with replacement within each environment.

    The stratified bootstrap of the same source (section 4.1). Environments are not drawn: they are the benchmark.
    """
    thresholds = _finite(thresholds_X, 1)
    profiles_R_X = np.zeros((resamples, len(thresholds)))
    for scores_S in scores_E_S:
        scores = _finite(scores_S, 1)
        drawn_R_S = scores[generator.integers(len(scores), size=(resamples, len(scores)))]
        drawn_R_S.sort(axis=1)
        below_R_X = np.stack([np.searchsorted(drawn_S, thresholds, side="right") for drawn_S in drawn_R_S])
        profiles_R_X += (1 - below_R_X / len(scores)) / len(scores_E_S)
    low, high = np.quantile(profiles_R_X, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return low, high
