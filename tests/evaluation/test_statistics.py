"""Golden values worked by hand (t quantiles from a printed table), and properties."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from r3l.evaluation import statistics as s

T_975_2 = 4.302653  # t quantile, 2 degrees of freedom


def rng():
    return np.random.default_rng(7)


def test_t_interval_of_three_seeds():
    # mean 0.4, deviations -0.1 0 0.1: sd 0.1, standard error 0.1 / sqrt 3
    interval = s.t_interval([0.3, 0.4, 0.5])
    half = T_975_2 * 0.1 / math.sqrt(3)
    assert interval.mean == pytest.approx(0.4)
    assert interval.low == pytest.approx(0.4 - half, abs=1e-6)
    assert interval.high == pytest.approx(0.4 + half, abs=1e-6)
    assert interval.kind == "t, 3 seeds"


def test_wilson_interval_by_hand():
    """3 of 10: centre (p + z^2/2n) / (1 + z^2/n), half width z sqrt(p(1-p)/n + z^2/4n^2) / (1 + z^2/n)."""
    interval = s.wilson_interval([1, 1, 1] + [0] * 7)
    z = 1.959964
    centre, scale = 0.3 + z * z / 20, 1 + z * z / 10
    half = z * math.sqrt(0.3 * 0.7 / 10 + z * z / 400)
    assert (interval.low, interval.high) == pytest.approx(((centre - half) / scale, (centre + half) / scale), abs=1e-6)
    assert s.wilson_interval([0, 0]).low == 0 and s.wilson_interval([1, 1]).high == 1


def test_one_seed_has_no_interval():
    interval = s.t_interval([0.25])
    assert (interval.mean, interval.low, interval.high, interval.kind) == (0.25, None, None, "n/a (1 seed)")


def test_paired_difference_is_by_task_and_seed():
    ours = [[1, 1, 0, 1], [1, 0, 1, 1], [0, 1, 1, 0]]
    theirs = [[0, 1, 0, 1], [1, 0, 0, 0], [0, 0, 0, 0]]
    # seed means of the differences: 1/4, 2/4, 2/4; mean 5/12, sd = sqrt(1/48)
    difference = s.paired_difference(ours, theirs)
    half = T_975_2 * math.sqrt(1 / 48) / math.sqrt(3)
    assert difference.mean == pytest.approx(5 / 12)
    assert difference.low == pytest.approx(5 / 12 - half, abs=1e-6)


def test_probability_of_improvement_counts_ties_half():
    # pairs: 2>1, 2=2, 3>1, 3>2: (3 + 0.5) / 4
    assert s.probability_of_improvement([2, 3], [1, 2]) == pytest.approx(3.5 / 4)
    assert s.probability_of_improvement([1], [1]) == 0.5


def test_holm_steps_down_and_keeps_the_order():
    # sorted 0.01 x 3, 0.02 x 2 = 0.04, 0.04 x 1 = 0.04
    assert s.holm([0.04, 0.01, 0.02]) == pytest.approx([0.04, 0.03, 0.04])
    assert s.holm([0.9, 0.8]) == pytest.approx([1.0, 1.0])
    assert s.holm([]) == []


def test_benjamini_hochberg_divides_by_the_rank_and_keeps_the_order():
    """Sorted 0.01, 0.02, 0.04 times 3/1, 3/2, 3/3."""
    assert s.benjamini_hochberg([0.04, 0.01, 0.02]) == pytest.approx([0.04, 0.03, 0.03])
    assert s.benjamini_hochberg([]) == []


def test_paired_p_value():
    # t = mean / (sd / sqrt n) = 0.4 / (0.1 / sqrt 3) = 6.928; two-sided p with 2 degrees of freedom 0.02021
    assert s.paired_p_value([0.3, 0.4, 0.5]) == pytest.approx(0.02021, abs=1e-5)
    assert s.paired_p_value([0.3]) is None
    assert s.paired_p_value([0.0, 0.0]) == 1.0
    assert s.paired_p_value([0.1, 0.1]) == 0.0


@pytest.mark.parametrize("bad", [[], [float("nan")], [float("inf"), 1.0]])
def test_no_statistics_of_nothing(bad):
    with pytest.raises(ValueError, match="finite"):
        s.t_interval(bad)


def test_performance_profile_by_hand():
    # above 0, 0.3, 0.4, 0.7: of the first environment's two seeds 1, 1/2, 1/2, 0; of the second's one seed 1, 1, 0, 0
    profile = s.performance_profile([[0.2, 0.6], [0.4]], [0, 0.3, 0.4, 0.7])
    assert profile.tolist() == [1, 0.75, 0.25, 0]


def test_profile_band_of_two_seeds_by_hand():
    """Above 0.3 is none, one or both of two draws of (0.2, 0.6), with 1/4, 1/2, 1/4: the 95 % band is all of [0, 1]."""
    low, high = s.profile_band([[0.2, 0.6]], [0.1, 0.3, 0.7], rng())
    assert (low.tolist(), high.tolist()) == ([1, 0, 0], [1, 1, 0])
    # with an environment whose seeds agree, which is never drawn in place of the other: half of it is certain
    low, high = s.profile_band([[0.2, 0.6], [0.5, 0.5]], [0.3], rng())
    assert (low[0], high[0]) == (0.5, 1)


@given(st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=4), min_size=1, max_size=3))
def test_profiles_fall_and_repeat(scores):
    thresholds = np.linspace(0, 1, 11)
    profile = s.performance_profile(scores, thresholds)
    first, second = (s.profile_band(scores, thresholds, rng(), resamples=50) for _ in range(2))
    assert (np.diff(profile) <= 0).all() and profile[-1] == 0
    assert np.array_equal(first, second) and (first[0] <= first[1]).all() and (first[1] <= 1).all()
