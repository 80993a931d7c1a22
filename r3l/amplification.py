"""Positive amplification (paper section 3.4): successes weigh more than the failures around them."""

from __future__ import annotations

from typing import Literal

import numpy as np

AmplifyRule = Literal["paper", "released_code", "uniform", "none"]


def amplify(
    advantages_G: np.ndarray, rewards_G: np.ndarray, rule: AmplifyRule, alpha: float, reward_max: float = 1.0
) -> np.ndarray:
    """Amplified advantages_G, shape (G,).

    - ``paper``: alpha where r reaches ``reward_max`` and the group's rewards differ; alpha*A where A > 0; else A.
      Without the variance guard an all-success group would keep pushing (audit A-3, A-4).
    - ``released_code``: exactly 1.0 where r reaches the maximum, even in an all-success group; alpha*A where
      A >= 0; else A (audit A-1, A-2).
    - ``uniform``: alpha*A where A > 0.  - ``none``: A.
    """
    if rule == "none":
        return advantages_G
    amplified_G = np.where(advantages_G > 0, alpha * advantages_G, advantages_G)
    best_G = rewards_G >= reward_max
    if rule == "released_code":
        return np.where(best_G, 1.0, amplified_G)
    if rule == "paper" and np.ptp(rewards_G) > 0:
        return np.where(best_G, alpha, amplified_G)
    return amplified_G
