"""Advantages of one group: pure functions from returns_G to advantages_G (both shape (G,))."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from r3l.core.trajectory import Trajectory

STD_EPSILON = 1e-6  # released code, grpo_advantage.py: added to the standard deviation

Advantage = float | np.ndarray  # of a trajectory: one number for all its tokens, or one a token, shape (T,)
Advantages = np.ndarray | Sequence[Advantage]  # of a group's members; an array has shape (G,)
BaselineRule = Literal["mean", "logavgexp"]


def all_equal(values: Sequence[float] | np.ndarray) -> bool:
    """Whether there is nothing to compare. Exactly: the deviation of N equal values is mostly not 0 but a rounding."""
    return len(values) == 0 or bool(np.max(values) == np.min(values))


def mean_of(values: Sequence[float] | np.ndarray) -> float:
    """The mean; of equal values that value itself, which a rounded sum can miss (0.1 + 0.1 + 0.1 is above 0.3)."""
    return float(values[0] if len(values) and all_equal(values) else np.mean(values))


def baseline_of(returns_G: np.ndarray, rule: BaselineRule = "mean", tau: float = 1.0) -> float:
    """The group's baseline: the mean, or tau * log(mean(exp(r / tau))) (OPMD's other baseline, audit 0.7).

    A singleton has baseline 0: it keeps its raw return (R3L's released code; RLTF's has the mean there too).
    """
    if len(returns_G) == 1:
        return 0.0
    if rule == "logavgexp":
        top = float(returns_G.max())  # subtracted so that exp cannot overflow
        return top + tau * float(np.log(np.exp((returns_G - top) / tau).mean()))
    return mean_of(returns_G)


def centred(returns_G: np.ndarray, baseline: float | None = None) -> np.ndarray:
    """OPMD: r - b, where b is the group's mean unless given."""
    return np.asarray(returns_G - (baseline_of(returns_G) if baseline is None else baseline))


def standardised(returns_G: np.ndarray) -> np.ndarray:
    """GRPO: (r - mean) / (std + 1e-6) with the unbiased (n-1) std. A singleton keeps its raw return."""
    if len(returns_G) == 1:
        return returns_G.astype(float)
    return np.asarray(centred(returns_G) / (returns_G.std(ddof=1) + STD_EPSILON))


def mean_advantage(trajectory: Trajectory, advantage: Advantage) -> float:
    """Over the sampled tokens of ``trajectory``: one number for metrics and readers."""
    if not isinstance(advantage, np.ndarray):
        return float(advantage)
    sampled = trajectory.response_mask() > 0
    return float(np.mean(advantage, where=sampled)) if sampled.any() else 0.0
