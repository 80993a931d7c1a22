"""Intervals: golden values worked by hand, t quantiles from a printed table."""

from __future__ import annotations

import math

import numpy as np
import pytest

from r3l.stats.intervals import cluster_bootstrap, newcombe_bounds, t_interval, wilson_interval

T_975_2 = 4.302653  # t quantile, 2 degrees of freedom


def test_t_interval_of_three_seeds():
    # mean 0.4, deviations -0.1 0 0.1: sd 0.1, standard error 0.1 / sqrt 3
    interval = t_interval([0.3, 0.4, 0.5])
    half = T_975_2 * 0.1 / math.sqrt(3)
    assert interval.mean == pytest.approx(0.4)
    assert interval.low == pytest.approx(0.4 - half, abs=1e-6)
    assert interval.high == pytest.approx(0.4 + half, abs=1e-6)
    assert interval.kind == "t, 3 seeds"


def test_wilson_interval_by_hand():
    """3 of 10: centre (p + z^2/2n) / (1 + z^2/n), half width z sqrt(p(1-p)/n + z^2/4n^2) / (1 + z^2/n)."""
    interval = wilson_interval(0.3, 10)
    z = 1.959964
    centre, scale = 0.3 + z * z / 20, 1 + z * z / 10
    half = z * math.sqrt(0.3 * 0.7 / 10 + z * z / 400)
    assert (interval.low, interval.high) == pytest.approx(
        ((centre - half) / scale, (centre + half) / scale), abs=1e-6
    )
    assert wilson_interval(0.0, 2).low == 0 and wilson_interval(1.0, 2).high == 1


def test_one_seed_has_no_interval():
    interval = t_interval([0.25])
    assert (interval.mean, interval.low, interval.high, interval.kind) == (0.25, None, None, "n/a (1 seed)")


@pytest.mark.parametrize("bad", [[], [float("nan")], [float("inf"), 1.0]])
def test_no_statistics_of_nothing(bad):
    with pytest.raises(ValueError, match="finite"):
        t_interval(bad)


def test_two_seeds_are_points():
    few = t_interval([0.28, 0.43])
    assert (few.mean, few.low, few.high, few.points) == (pytest.approx(0.355), None, None, (0.28, 0.43))


def test_newcombes_interval_is_that_of_his_table():
    """56 of 70 minus 48 of 80, method 10 (Newcombe 1998, table II): 0.0524 to 0.3339."""
    assert newcombe_bounds(56 / 70, 70, 48 / 80, 80) == pytest.approx((0.0524, 0.3339), abs=5e-5)


def test_the_bootstrap_draws_whole_tasks():
    """Of two tasks, solved always and never, a quarter of the draws has one of them twice: all of [0, 1]."""

    def mean(sums, counts):
        return sums[..., 0] / counts[..., 0]

    generator = np.random.default_rng(7)
    solved, attempts = np.array([[10.0], [0.0]]), np.array([[10.0], [10.0]])
    assert cluster_bootstrap(solved, attempts, mean, generator) == (0, 1)
    half = np.array([[5.0], [5.0]])  # tasks alike: nothing to resample, however attempts differ
    assert cluster_bootstrap(half, attempts, mean, generator) == (0.5, 0.5)
    assert cluster_bootstrap(solved[:1], attempts[:1], mean, generator) is None
