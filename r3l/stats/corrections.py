"""Corrections for several tests at once.

Holm bounds the chance of any false finding (family-wise error rate); Benjamini-Hochberg bounds the expected
share of false findings (false discovery rate).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

Correction = Literal["holm", "benjamini-hochberg"]


def adjusted(p_values: Sequence[float], correction: Correction) -> list[float]:
    """Adjusted p-values of one family, in the given order; reject where one is below alpha."""
    return holm(p_values) if correction == "holm" else benjamini_hochberg(p_values)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down procedure (1979): the k-th smallest of m p-values times m - k + 1, made increasing."""
    order = np.argsort(p_values, kind="stable")
    stepped = np.asarray(p_values)[order] * np.arange(len(order), 0, -1)
    return _in_given_order(np.maximum.accumulate(stepped), order)


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Benjamini and Hochberg's step-up procedure (1995).

    The k-th smallest of m p-values times m / k, made increasing from the largest down.
    """
    order = np.argsort(p_values, kind="stable")
    shares = np.arange(1, len(order) + 1) / max(len(order), 1)
    stepped = np.asarray(p_values)[order] / shares
    return _in_given_order(np.minimum.accumulate(stepped[::-1])[::-1], order)


def _in_given_order(sorted_p: np.ndarray, order: np.ndarray) -> list[float]:
    p_values = np.empty(len(order))
    p_values[order] = np.minimum(sorted_p, 1.0)
    return [float(p) for p in p_values]


def level_of_one_test(alpha: float, tests: int, rejected: int, correction: Correction) -> float:
    """The bound for one uncorrected p-value, from which power and minimum detectable effects follow.

    Holm: the first and strictest step, alpha / tests. Benjamini-Hochberg: the step at which the procedure
    ended, with ``rejected`` findings.
    """
    steps = 1 if correction == "holm" else max(rejected, 1)
    return alpha * steps / max(tests, 1)
