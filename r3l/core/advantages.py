"""Advantages of one group: pure functions from returns_G to advantages_G, both shape (G,)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from r3l.core.trajectory import Trajectory

STD_EPSILON = 1e-6  # added to the standard deviation (released code, grpo_advantage.py)

# Advantage of a trajectory: one number for all its tokens, or one per token, shape (T,).
Advantage = float | np.ndarray
Advantages = np.ndarray | Sequence[Advantage]  # one per member of a group; an array has shape (G,)
BaselineRule = Literal["mean", "logavgexp"]


def all_equal(values: Sequence[float] | np.ndarray) -> bool:
    """True if all values are exactly equal, so that nothing can be compared; also for one value or none."""
    # The standard deviation does not tell: for N equal values it is often a rounding error instead of 0.
    return len(values) == 0 or bool(np.max(values) == np.min(values))


def mean_of(values: Sequence[float] | np.ndarray) -> float:
    """The mean of one or more values; if they are all equal, exactly that value, without rounding."""
    if len(values) and all_equal(values):  # a sum would be rounded: 0.1 + 0.1 + 0.1 > 0.3
        return float(values[0])
    return float(np.mean(values))


def baseline_of(returns_G: np.ndarray, rule: BaselineRule = "mean", tau: float = 1.0) -> float:
    """The baseline of a group's returns by ``rule``: advantages are returns minus it.

    ``mean``, or ``logavgexp`` = tau * log(mean(exp(r / tau))) (OPMD, audit 0.7). A group of one has baseline
    0, so it keeps its raw return (R3L's released code; RLTF's uses the mean). ``tau``: only of ``logavgexp``.
    """
    if len(returns_G) == 1:
        return 0.0
    if rule == "logavgexp":
        largest = float(returns_G.max())  # subtracted so that exp cannot overflow
        return largest + tau * float(np.log(np.exp((returns_G - largest) / tau).mean()))
    return mean_of(returns_G)


def centred(returns_G: np.ndarray, baseline: float | None = None) -> np.ndarray:
    """OPMD: r - baseline, shape (G,). The default baseline is the group's mean, or 0 in a group of one."""
    if baseline is None:
        baseline = baseline_of(returns_G)
    return np.asarray(returns_G - baseline)


def standardised(returns_G: np.ndarray) -> np.ndarray:
    """GRPO: (r - mean) / (std + 1e-6), std with n - 1; shape (G,), zeros for equal returns.

    A group of one keeps its raw return.
    """
    if len(returns_G) == 1:
        return returns_G.astype(float)
    return np.asarray(centred(returns_G) / (returns_G.std(ddof=1) + STD_EPSILON))


def mean_advantage(trajectory: Trajectory, advantage: Advantage) -> float:
    """The mean of ``advantage`` over the sampled tokens of a trajectory, 0 without any; for metrics and logs.

    ``advantage``: one number, which is returned as it is, or one per token of the trajectory, shape (T,).
    """
    if not isinstance(advantage, np.ndarray):
        return float(advantage)
    sampled = trajectory.response_mask() > 0
    return float(np.mean(advantage, where=sampled)) if sampled.any() else 0.0
