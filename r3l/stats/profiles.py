"""Performance profiles over environments: run-score distributions (rliable; Agarwal et al. 2021, 4.2)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from r3l.stats.intervals import CONFIDENCE, RESAMPLES, Floats, finite


def performance_profile(scores_E_S: Sequence[ArrayLike], thresholds_X: ArrayLike) -> Floats:
    """The share of runs with a score above each threshold tau of ``thresholds_X``, shape (X,).

    ``scores_E_S``: one score per seed, by environment. Mean over environments E of the mean over seeds of
    1[score > tau]. Environments may have different numbers of seeds and weigh equally. Raises ValueError
    without environments, for one without scores, and for values that are not finite.
    """
    _check_environments(scores_E_S)
    thresholds = finite(thresholds_X, 1)
    profiles_E_X = np.array([(finite(s, 1)[:, None] > thresholds).mean(axis=0) for s in scores_E_S])
    return np.asarray(profiles_E_X.mean(axis=0), dtype=np.float64)


def profile_band(
    scores_E_S: Sequence[ArrayLike],
    thresholds_X: ArrayLike,
    generator: np.random.Generator,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> tuple[Floats, Floats]:
    """Pointwise percentile band (low, high; shape (X,) each) of :func:`performance_profile`, by bootstrap.

    Seeds are drawn with replacement within each environment (section 4.1 of the same source). Environments
    are not drawn: they are the benchmark. Below about ten seeds the band is too narrow. Raises ValueError as
    the profile does.
    """
    _check_environments(scores_E_S)
    thresholds = finite(thresholds_X, 1)
    profiles_R_X = np.zeros((resamples, len(thresholds)))
    for scores_S in scores_E_S:
        scores = finite(scores_S, 1)
        drawn_R_S = scores[generator.integers(len(scores), size=(resamples, len(scores)))]
        # Sorted draws turn "how many are at most tau" into one binary search per resample.
        drawn_R_S.sort(axis=1)
        below_R_X = np.stack([np.searchsorted(drawn_S, thresholds, side="right") for drawn_S in drawn_R_S])
        profiles_R_X += (1 - below_R_X / len(scores)) / len(scores_E_S)
    low, high = np.quantile(profiles_R_X, [(1 - confidence) / 2, (1 + confidence) / 2], axis=0)
    return low, high


def _check_environments(scores_E_S: Sequence[ArrayLike]) -> None:
    """Raise ValueError without environments."""
    if not len(scores_E_S):
        raise ValueError("a performance profile needs the scores of one environment or more")
