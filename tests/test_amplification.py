"""Worked values of A-1 to A-4 (docs/audit.md): released and paper amplification of centred advantages."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from r3l.amplification import AmplificationSettings, amplify
from r3l.core.advantages import baseline_of, centred, standardised

ONE_OF_EIGHT = [1.0] + [0.0] * 7
GOLDEN = [  # rewards, released A, paper A (alpha 3, largest reward of the group, variance guard)
    (ONE_OF_EIGHT, [1.0] + [-0.125] * 7, [3.0] + [-0.125] * 7),
    ([1.0] * 4 + [0.0] * 4, [1.0] * 4 + [-0.5] * 4, [3.0] * 4 + [-0.5] * 4),
    ([1.0] * 7 + [0.0], [1.0] * 7 + [-0.875], [3.0] * 7 + [-0.875]),
    ([1.0] * 8, [1.0] * 8, [0.0] * 8),
    ([0.0] * 8, [0.0] * 8, [0.0] * 8),
    (
        [1, 0.75, 0.5, 0.1, 0, 0, 0, 0],
        [1.0, 1.36875, 0.61875, -0.19375] + [-0.29375] * 4,
        [3.0, 1.36875, 0.61875, -0.19375] + [-0.29375] * 4,
    ),
    (
        [0.75, 0.5, 0, 0, 0, -0.1, -0.1, -0.1],
        [1.89375, 1.14375] + [-0.11875] * 3 + [-0.21875] * 3,
        [3.0, 1.14375] + [-0.11875] * 3 + [-0.21875] * 3,
    ),
]


@pytest.mark.parametrize(("rewards", "released", "paper"), GOLDEN)
def test_golden_advantages(rewards, released, paper):
    rewards_G = np.asarray(rewards, dtype=float)
    released_code = {"amplify_rule": "released_code", "amplify_all_equal": "as_rule", "reward_max": "env_max"}
    for changes, expected in ((released_code, released), ({}, paper)):
        settings = AmplificationSettings(**changes)
        advantages_G = amplify(centred(rewards_G), rewards_G, settings)
        np.testing.assert_allclose(advantages_G, expected, atol=1e-12)


def test_the_paper_read_to_the_letter_pushes_a_group_that_has_solved_its_task():
    literal = AmplificationSettings(amplify_all_equal="as_rule", reward_max="env_max")
    ones, zeros = np.ones(8), np.zeros(8)
    np.testing.assert_array_equal(amplify(centred(ones), ones, literal), [3.0] * 8)
    np.testing.assert_array_equal(amplify(centred(zeros), zeros, literal), [0.0] * 8)


def test_the_group_maximum_amplifies_the_best_but_never_an_all_failed_group():
    by_group = AmplificationSettings(reward_max="group_max", amplify_all_equal="as_rule")
    rewards_G = np.asarray([0.5, 0.0])
    np.testing.assert_allclose(amplify(centred(rewards_G), rewards_G, by_group), [3.0, -0.25])
    np.testing.assert_array_equal(amplify(np.zeros(3), np.zeros(3), by_group), np.zeros(3))


def test_released_grpo_amplification_weakens_a_lone_success():
    """z = 2.475 becomes 1.0 (audit A-12)."""
    rewards_G = np.asarray(ONE_OF_EIGHT)
    settings = AmplificationSettings(
        amplify_rule="released_code", amplify_all_equal="as_rule", reward_max="env_max"
    )
    advantages_G = amplify(standardised(rewards_G), rewards_G, settings)
    np.testing.assert_allclose(advantages_G, [1.0] + [-0.353552] * 7, atol=1e-5)


def test_log_average_exp_baseline_by_hand():
    """tau log mean exp(r / tau) of (0, 1): log((1 + e) / 2) at tau 1; a large tau gives the mean, a small the
    best.
    """
    rewards_G = np.asarray([0.0, 1.0])
    assert baseline_of(rewards_G, "logavgexp", 1.0) == pytest.approx(np.log((1 + np.e) / 2))
    assert baseline_of(rewards_G, "logavgexp", 1e6) == pytest.approx(0.5, abs=1e-6)
    assert baseline_of(rewards_G, "logavgexp", 1e-3) == pytest.approx(1.0, abs=1e-3)


def test_uniform_and_none():
    rewards_G = np.asarray(ONE_OF_EIGHT)
    a = centred(rewards_G)
    uniform, none = (AmplificationSettings(amplify_rule=rule) for rule in ("uniform", "none"))
    np.testing.assert_allclose(amplify(a, rewards_G, uniform), [2.625] + [-0.125] * 7)
    np.testing.assert_array_equal(amplify(a, rewards_G, none), a)


rewards = st.lists(st.floats(-1, 1), min_size=2, max_size=16)


@given(rewards, st.floats(-5, 5))
def test_advantages_are_finite_and_ignore_a_constant(values, shift):
    rewards_G = np.asarray(values)
    for rule in (centred, standardised):
        assert np.isfinite(rule(rewards_G)).all()
    np.testing.assert_allclose(centred(rewards_G + shift), centred(rewards_G), atol=1e-9)


@given(rewards)
def test_amplification_never_weakens_or_flips(values):
    rewards_G = np.asarray(values)
    a = centred(rewards_G)
    for rule in ("paper", "uniform"):
        amplified = amplify(a, rewards_G, AmplificationSettings(amplify_rule=rule))
        assert (np.sign(amplified) == np.sign(a)).all() or np.ptp(rewards_G) < 1e-12
        assert (amplified >= a - 1e-12).all()
