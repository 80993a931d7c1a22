"""Verdicts by hand: standard errors of simple values, quantiles of printed t and normal tables."""

import pytest

from r3l.evaluation.power import Goal
from r3l.evaluation.statistics import t_interval
from r3l.evaluation.verdicts import Estimate, verdict


def test_two_one_sided_tests_by_hand():
    """0.01, 0.00, 0.01, 0.00: mean 0.005, standard error 0.0057735 / 2; t(3) at 0.95 is 2.3534."""
    estimate = Estimate.of_seeds([0.01, 0.0, 0.01, 0.0])
    assert estimate.bounds(0.9) == pytest.approx((-0.001794, 0.011794), abs=1e-6)
    assert estimate.p_equivalent(0.011794) == pytest.approx(0.05, abs=1e-4)  # the margin touches the 90 % interval
    assert estimate.p_equivalent(0.02) == pytest.approx(0.0069, abs=2e-4)  # t = 0.015 / 0.0028868 = 5.196


def test_of_a_bootstrap_over_tasks():
    """A 95 % interval of +-0.098 has the standard error 0.05; 1.96 + 0.8416 of them are detected."""
    estimate = Estimate.of_bounds(0.1, 0.002, 0.198)
    assert (estimate.error, estimate.mde(Goal())) == pytest.approx((0.05, 0.14008), abs=1e-4)
    assert estimate.p_value == pytest.approx(0.0455, abs=1e-4)  # two standard errors
    assert estimate.power(0.14008, Goal()) == pytest.approx(0.8, abs=1e-4)
    assert estimate.power(0.0, Goal(alpha=0.01)) == pytest.approx(0.01, abs=1e-6)  # of nothing: the level


def test_power_of_seeds_is_that_of_the_minimum_detectable_effect():
    few = Estimate.of_seeds([0.1, 0.2, 0.15])
    assert few.power(few.mde(Goal()), Goal()) == pytest.approx(0.8, abs=1e-6)
    assert Estimate.of_seeds([0.1, 0.1]).power(0.1, Goal()) == 1.0  # without spread


@pytest.mark.parametrize(
    "mean, error, corrected, word",
    [
        (0.10, 0.01, 0.001, "ahead"),
        (-0.10, 0.01, 0.001, "behind"),
        (0.10, 0.01, 0.06, "inconclusive"),  # shown alone, not after the correction
        (0.00, 0.01, 1.0, "equivalent"),  # 0.02 is two standard errors away, 1.645 are needed
        (0.00, 0.02, 1.0, "inconclusive"),
        (0.01, 0.001, 0.001, "equivalent"),  # shown to differ from 0, and to be small
    ],
)
def test_verdicts(mean, error, corrected, word):
    assert verdict(Estimate(mean, error), corrected, 0.02) == word


def test_two_seeds_are_points():
    few = t_interval([0.28, 0.43])
    assert (few.mean, few.low, few.high, few.points) == (pytest.approx(0.355), None, None, (0.28, 0.43))
