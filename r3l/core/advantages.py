"""Advantages of one group: pure functions from rewards_G to advantages_G (both shape (G,))."""

from __future__ import annotations

import numpy as np

STD_EPSILON = 1e-6  # released code, grpo_advantage.py: added to the standard deviation


def centred(rewards_G: np.ndarray) -> np.ndarray:
    """OPMD: r - mean(r). A singleton keeps its raw reward (released code: baseline 0)."""
    baseline = rewards_G.mean() if len(rewards_G) > 1 else 0.0
    return np.asarray(rewards_G - baseline)


def standardised(rewards_G: np.ndarray) -> np.ndarray:
    """GRPO: (r - mean) / (std + 1e-6) with the unbiased (n-1) std. A singleton keeps its raw reward."""
    if len(rewards_G) == 1:
        return rewards_G.astype(float)
    return np.asarray(centred(rewards_G) / (rewards_G.std(ddof=1) + STD_EPSILON))
