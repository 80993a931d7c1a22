"""Equal rewards give advantages of exactly 0, not a rounding error divided by another."""

import numpy as np
import pytest
from conftest import make_trajectory

from r3l.config import build_method, resolve
from r3l.core.trajectory import Group

REWARDS = [*(k / 100 for k in range(-10, 110, 7)), 1 / 3, 0.1 + 0.2, 1e-9, 123.4]
METHODS = [
    "r3l",
    "r3l@advantage=standardised",
    "grpo",
    "opmd",
    "gspo",
    "rloo",
    "gigpo",
    "hgpo",
    "reinforce_pp",
]
METHODS += ["reinforce_pp@baseline=group_mean", "rltf_sd", "dapo", "dapo@binary_reward=true", "critique_grpo"]


def group_of(rewards):
    members = [make_trajectory(2, reward) for reward in rewards]  # a success from reward 1 on
    return Group(members[0].task, members)


@pytest.mark.parametrize("name", METHODS)
def test_equal_rewards_have_no_advantage_and_no_place_in_dynamic_sampling(name):
    method = build_method(resolve("nano", "alfworld", name, 0))
    for size in range(2, 13):
        for reward in REWARDS:
            group = group_of([reward] * size)
            (advantages,) = method.step_advantages([group])
            assert not np.any(np.concatenate([np.ravel(a) for a in advantages])), (size, reward)
            assert method.keep([group]) == (method.max_rounds == 1)


def test_failures_of_different_rewards_are_equal_where_only_success_counts():
    partial, solved = group_of([0.2, 0.0, 0.7]), group_of([1.5, 1.0])
    assert build_method(resolve("nano", "alfworld", "dapo", 0)).keep([partial])
    binary = build_method(resolve("nano", "alfworld", "dapo@binary_reward=true", 0))
    assert not binary.keep([partial]) and not binary.keep([solved])
    assert binary.keep([Group(partial.task, partial.trajectories + solved.trajectories)])
