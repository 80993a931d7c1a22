"""HGPO against hand-computed values: turns compared with turns of equal histories, the longer the heavier.

Three rollouts of two turns, gamma 1/2. A sees a, b and wins; B sees a, b and loses; C sees c, b and wins.
Returns: A 1/2 1, B 0 0, C 1/2 1.

- One observation: a has 1/2 and 0, so +-1/4; b has 1, 0, 1, so 1/3, -2/3, 1/3; c is alone.
- Two observations: (a, b) has 1 and 0, so +-1/2; (c, b) is alone.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import make_trajectory
from r3l.baselines.gigpo import GiGPO
from r3l.baselines.hgpo import HGPO

from r3l.config import build_method, resolve
from r3l.core.batching import collate, rows_of
from r3l.core.trajectory import Group

PLAIN = {"gamma": 0.5, "history": 1, "normalisation": "none"}


def rollout(observations, reward):
    base = make_trajectory(len(observations), reward)
    return replace(
        base, turns=[replace(t, observation=o) for t, o in zip(base.turns, observations, strict=True)]
    )


def group(*rollouts):
    return Group(rollouts[0].task, list(rollouts))


ABC = group(rollout("ab", 1.0), rollout("ab", 0.0), rollout("cb", 1.0))


def by_turn(settings, of=ABC, method=HGPO):
    """Advantage of each turn, in one list; its two tokens have it, its prompt token 0."""
    rows = np.concatenate(method(settings).advantages(of)).reshape(-1, 3)
    assert not rows[:, 0].any() and (rows[:, 1] == rows[:, 2]).all()
    return rows[:, 1].tolist()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [  # turns of A, B, C
        ({}, [1 / 4, 4 / 9, -1 / 4, -5 / 9, 0, 1 / 3]),  # weights 1 and 2: (1/3 + 2 x 1/2) / 3
        ({"level_weight": "released"}, [1 / 4, 13 / 30, -1 / 4, -17 / 30, 0, 1 / 3]),  # weights 2 and 3
        ({"weight_alpha": 0.0}, [1 / 4, 5 / 12, -1 / 4, -7 / 12, 0, 1 / 3]),  # equal weights
        ({"weight_alpha": 2.0}, [1 / 4, 7 / 15, -1 / 4, -8 / 15, 0, 1 / 3]),  # weights 1 and 4
        ({"history": 0}, [1 / 4, 1 / 3, -1 / 4, -2 / 3, 0, 1 / 3]),  # observations alone
        ({"history": 5}, [1 / 4, 4 / 9, -1 / 4, -5 / 9, 0, 1 / 3]),  # longer than any rollout
    ],
)
def test_levels_are_averaged_by_their_length(changes, expected):
    np.testing.assert_allclose(by_turn(PLAIN | changes), expected, atol=1e-7)


def test_levels_are_divided_by_the_deviation_of_the_population():
    """Two values: +-1. Of 1, 0, 1 it is sqrt(2)/3: 0.7071, -1.4142. The longer level counts twice."""
    root = np.sqrt(0.5)
    expected = [1, (root + 2) / 3, -1, (-2 * root - 2) / 3, 0, root]
    np.testing.assert_allclose(by_turn(PLAIN | {"normalisation": "std"}), expected, atol=1e-4)


def test_a_level_of_equal_returns_takes_no_weight_from_the_others():
    """A and B win, C loses: (a, b) has 1 and 1, so b alone speaks: 1/3, 1/3, -2/3. Then a has 1/2 and 1/2."""
    equal = group(rollout("ab", 1.0), rollout("ab", 1.0), rollout("cb", 0.0))
    np.testing.assert_allclose(by_turn(PLAIN, equal), [0, 1 / 3, 0, 1 / 3, 0, -2 / 3], atol=1e-7)


def test_without_history_it_is_gigpos_comparison_of_turns():
    gigpo = {"gamma": 0.5, "normalisation": "none"}
    without_turns = by_turn(gigpo | {"omega": 0.0}, method=GiGPO)
    turns = np.subtract(by_turn(gigpo, method=GiGPO), without_turns)
    np.testing.assert_allclose(by_turn(PLAIN | {"history": 0}), turns, atol=1e-6)


def test_one_rollout_that_comes_back_is_compared_with_itself():
    """a, b, a, b with reward 1: returns 1/8 1/4 1/2 1; a +-3/16, b +-3/8, and (a, b) +-3/8 too; (b, a) alone."""
    alone = group(rollout("abab", 1.0))
    np.testing.assert_allclose(by_turn(PLAIN, alone), [-3 / 16, -3 / 8, 3 / 16, 3 / 8], atol=1e-7)


@pytest.mark.parametrize("samples", ["trajectory", "turn"])
def test_batches_carry_the_advantage_of_each_token(samples):
    """With the weights of token_mean: 1 / 12 tokens."""
    batch = collate(rows_of(HGPO(PLAIN), [ABC], samples), torch.device("cpu"))
    of_tokens = batch.advantages_B_T[batch.mask_B_T > 0]
    np.testing.assert_allclose(of_tokens, np.repeat([1 / 4, 4 / 9, -1 / 4, -5 / 9, 0, 1 / 3], 2), atol=1e-7)
    np.testing.assert_allclose(batch.weight_B_T[batch.mask_B_T > 0], 1 / 12)


def test_the_released_profile_weighs_as_the_release():
    settings = build_method(resolve("nano", "alfworld", "hgpo@profile=released_code", 0)).settings
    assert (settings.level_weight, settings.history, settings.kl_coef) == ("released", 2, 0.01)
