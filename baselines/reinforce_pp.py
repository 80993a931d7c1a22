"""REINFORCE++: advantages normalised over all tokens of the step, PPO's clipped ratio (arXiv 2501.03262).

The variant without a KL term in the reward (``use_kl_in_reward: false`` of verl), so that all tokens of a
rollout share its reward; a KL is a separate loss, as for every method here. ``baseline: group_mean`` is the
paper's REINFORCE++ with baseline.
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
    """Settings of REINFORCE++: the settings of GRPO, and a baseline that is subtracted from rewards.

    Codes in the descriptions, such as (A-8) or (audit 0.6), are entries of docs/audit.md.
    """

    baseline: Literal["none", "group_mean"] = option(
        "none",
        "subtracted from a reward before it is normalised",
        "REINFORCE++ paper; with baseline: the group's mean",
    )


class ReinforcePP(GRPO):
    """PPO's clipped loss with A = (r - mean) / (std + 1e-6) over all trained tokens of the step; no critic.

    r is the return of the token's rollout; with ``baseline: group_mean`` the mean of its group is subtracted
    first. N rollouts in one group.
    """

    Settings = ReinforcePPSettings
    settings: ReinforcePPSettings

    def step_advantages(self, groups: Sequence[Group]) -> list[np.ndarray]:
        """(r - mean) / (std + 1e-6), one array (G,) per group; mean and std are over all tokens that train.

        r is the return of the token's trajectory; with ``baseline: group_mean`` its group's mean is
        subtracted. Advantages are 0 if every token has the same r.
        """
        rewards = [group.returns_G() for group in groups]
        if self.settings.baseline == "group_mean":
            rewards = [centred(returns_G) for returns_G in rewards]

        # Every trainable token counts with the reward of its rollout.
        tokens = [t.credit_mask().sum() for group in groups for t in group.trajectories]
        rewards_of_tokens = np.repeat(np.concatenate([np.zeros(0), *rewards]), np.asarray(tokens, dtype=int))
        if all_equal(rewards_of_tokens):
            return [np.zeros_like(returns_G) for returns_G in rewards]
        mean = rewards_of_tokens.mean()
        std = rewards_of_tokens.std(ddof=1)
        return [(returns_G - mean) / (std + STD_EPSILON) for returns_G in rewards]
