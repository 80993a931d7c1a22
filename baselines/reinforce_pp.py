"""REINFORCE++: advantages normalised over all tokens of the step, PPO's clipped ratio (arXiv 2501.03262).

The variant without a KL term in the reward (``use_kl_in_reward: false`` of verl), so that a rollout's tokens share its
reward: a KL, where one is set, is a loss of its own, as for every method here. ``baseline: group_mean`` is the paper's
REINFORCE++ with baseline.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from r3l.baselines.grpo import GRPO, GRPOSettings

from r3l.core.advantages import STD_EPSILON, all_equal, centred
from r3l.core.option import option
from r3l.core.trajectory import Group


class ReinforcePPSettings(GRPOSettings):
    """Every option of REINFORCE++."""

    baseline: Literal["none", "group_mean"] = option(
        "none",
        "what is taken from a reward before it is normalised",
        "REINFORCE++ paper; with baseline: the group's mean",
    )


class ReinforcePP(GRPO):
    """The method (see r3l.core.method.Method); N plain rollouts in one group."""

    Settings = ReinforcePPSettings
    settings: ReinforcePPSettings

    def step_advantages(self, groups: Sequence[Group]) -> list[np.ndarray]:
        """(r - mean) / (std + 1e-6) over the trained tokens of all groups, each of which counts its rollout's r."""
        subtracted = self.settings.baseline == "group_mean"
        rewards = [centred(group.returns_G()) if subtracted else group.returns_G() for group in groups]
        tokens = np.asarray([t.credit_mask().sum() for group in groups for t in group.trajectories], dtype=int)
        of_tokens = np.repeat(np.concatenate([np.zeros(0), *rewards]), tokens)
        if all_equal(of_tokens):
            return [np.zeros_like(returns_G) for returns_G in rewards]
        mean, std = of_tokens.mean(), of_tokens.std(ddof=1)
        return [(returns_G - mean) / (std + STD_EPSILON) for returns_G in rewards]
