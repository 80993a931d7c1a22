"""REINFORCE++ against hand-computed values: one mean and one deviation for all tokens of a step."""

import numpy as np
import pytest
from conftest import make_trajectory
from r3l.baselines.reinforce_pp import ReinforcePP

from r3l.core.batching import rows_of
from r3l.core.trajectory import Group, Objective

# Two tokens a turn. First task: reward 1 in 2 tokens, reward 0 in 4; second task: reward 0 in 2 tokens.
SOLVED, FAILED, ALONE = make_trajectory(1, 1.0), make_trajectory(2), make_trajectory(1)
STEP = [Group(SOLVED.task, [SOLVED, FAILED]), Group(ALONE.task, [ALONE])]


def test_advantages_are_normalised_over_all_tokens_of_the_step():
    """Tokens: 1 1 | 0 0 0 0 | 0 0. Mean 1/4, variance (2 (3/4)^2 + 6 (1/4)^2) / 7 = 1.5 / 7."""
    std = np.sqrt(1.5 / 7)
    first, second = ReinforcePP({}).step_advantages(STEP)
    np.testing.assert_allclose(first, [0.75 / std, -0.25 / std], rtol=1e-5)
    np.testing.assert_allclose(
        second, [-0.25 / std], rtol=1e-5
    )  # worse than the step, though its group has one member


def test_with_baseline_a_groups_mean_is_taken_first():
    """Tokens: 1/2 1/2 | -1/2 -1/2 -1/2 -1/2 | 0 0. Mean -1/8, variance (2 (5/8)^2 + 4 (3/8)^2 + 2 (1/8)^2) /
    7.
    """
    std = np.sqrt((2 * 25 + 4 * 9 + 2 * 1) / 64 / 7)
    first, second = ReinforcePP({"baseline": "group_mean"}).step_advantages(STEP)
    np.testing.assert_allclose(first, [5 / 8 / std, -3 / 8 / std], rtol=1e-5)
    np.testing.assert_allclose(second, [1 / 8 / std], rtol=1e-5)


def test_rows_have_the_steps_advantages_and_imitated_groups_are_not_compared():
    imitated = Group(SOLVED.task, [make_trajectory(3, 1.0)], Objective.SFT)
    rows = rows_of(ReinforcePP({}), [STEP[0], imitated, STEP[1]])
    std = np.sqrt(1.5 / 7)
    assert [row.advantage for row in rows] == pytest.approx(
        [0.75 / std, -0.25 / std, -0.25 / std, 1.0], rel=1e-5
    )
