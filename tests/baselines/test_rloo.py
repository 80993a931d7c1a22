"""RLOO against hand-computed values: every rollout against the mean of the others."""

import numpy as np
import pytest
from conftest import make_trajectory
from r3l.baselines.rloo import RLOO

from r3l.core.trajectory import Group


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        (
            [1, 0, 0, 0.5],
            [1 - 0.5 / 3, 0 - 0.5, 0 - 0.5, 0.5 - 1 / 3],
        ),  # the others' means: 1/6, 1/2, 1/2, 1/3
        ([1, 0], [1, -1]),
        ([1, 1, 1], [0, 0, 0]),
        ([0.5], [0.5]),  # no other member to compare with: the raw return, as everywhere
    ],
)
def test_the_baseline_leaves_a_rollouts_own_reward_out(rewards, expected):
    trajectories = [make_trajectory(1, reward) for reward in rewards]
    advantages = RLOO({}).advantages(Group(trajectories[0].task, trajectories))
    np.testing.assert_allclose(advantages, expected, atol=1e-12)
