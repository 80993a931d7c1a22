"""Performance profiles: golden values worked by hand, and properties."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from r3l.stats.profiles import performance_profile, profile_band


def rng():
    return np.random.default_rng(7)


def test_performance_profile_by_hand():
    # above 0, 0.3, 0.4, 0.7: of the first environment's two seeds 1, 1/2, 1/2, 0; of the second's one seed 1,
    # 1, 0, 0
    profile = performance_profile([[0.2, 0.6], [0.4]], [0, 0.3, 0.4, 0.7])
    assert profile.tolist() == [1, 0.75, 0.25, 0]


def test_profile_band_of_two_seeds_by_hand():
    """Above 0.3 is none, one or both of two draws of (0.2, 0.6), with 1/4, 1/2, 1/4: the 95 % band is all of
    [0, 1]."""
    low, high = profile_band([[0.2, 0.6]], [0.1, 0.3, 0.7], rng())
    assert (low.tolist(), high.tolist()) == ([1, 0, 0], [1, 1, 0])
    # with an environment whose seeds agree, which is never drawn in place of the other: half of it is certain
    low, high = profile_band([[0.2, 0.6], [0.5, 0.5]], [0.3], rng())
    assert (low[0], high[0]) == (0.5, 1)


def test_a_profile_needs_an_environment():
    for profile in (lambda: performance_profile([], [0.5]), lambda: profile_band([], [0.5], rng())):
        with pytest.raises(ValueError, match="scores of one environment or more"):
            profile()


@given(st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=4), min_size=1, max_size=3))
def test_profiles_fall_and_repeat(scores):
    thresholds = np.linspace(0, 1, 11)
    profile = performance_profile(scores, thresholds)
    first, second = (profile_band(scores, thresholds, rng(), resamples=50) for _ in range(2))
    assert (np.diff(profile) <= 0).all() and profile[-1] == 0
    assert np.array_equal(first, second) and (first[0] <= first[1]).all() and (first[1] <= 1).all()
