"""Golden values of the audit, section 8: released and paper amplification of centred advantages."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from r3l.amplification import amplify
from r3l.core.advantages import centred, standardised

ONE_OF_EIGHT = [1.0] + [0.0] * 7
GOLDEN = [  # rewards, released A, paper A (alpha 3, environment maximum, variance guard)
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
        [1.89375, 1.14375] + [-0.11875] * 3 + [-0.21875] * 3,
    ),
]


@pytest.mark.parametrize(("rewards", "released", "paper"), GOLDEN)
def test_golden_advantages(rewards, released, paper):
    rewards_G = np.asarray(rewards, dtype=float)
    for rule, expected in (("released_code", released), ("paper", paper)):
        found = amplify(centred(rewards_G), rewards_G, rule, alpha=3.0)
        np.testing.assert_allclose(found, expected, atol=1e-12)


def test_grpo_z_of_one_success_in_eight():
    z = standardised(np.asarray(ONE_OF_EIGHT))
    np.testing.assert_allclose(z, [2.474866] + [-0.353552] * 7, atol=1e-5)


def test_uniform_and_none():
    rewards_G = np.asarray(ONE_OF_EIGHT)
    a = centred(rewards_G)
    np.testing.assert_allclose(amplify(a, rewards_G, "uniform", 3.0), [2.625] + [-0.125] * 7)
    np.testing.assert_array_equal(amplify(a, rewards_G, "none", 3.0), a)


def test_singleton_group_keeps_its_reward():
    assert centred(np.asarray([1.0])) == standardised(np.asarray([1.0])) == 1.0


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
        amplified = amplify(a, rewards_G, rule, alpha=3.0)
        assert (np.sign(amplified) == np.sign(a)).all() or np.ptp(rewards_G) < 1e-12
        assert (amplified >= a - 1e-12).all()
