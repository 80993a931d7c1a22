"""Comparisons by hand: standard errors of simple values, quantiles of printed t and normal tables."""

import math

import numpy as np
import pytest

from r3l.stats.comparison import Effect, claim_verdict, compare_effects, interval_verdict
from r3l.stats.intervals import Interval

T_975_2 = 4.302653  # t quantile, 2 degrees of freedom


def test_two_one_sided_tests_by_hand():
    """0.01, 0.00, 0.01, 0.00: mean 0.005, standard error 0.0057735 / 2; t(3) at 0.95 is 2.3534."""
    effect = Effect.of_seeds([0.01, 0.0, 0.01, 0.0])
    assert effect.bounds(0.9) == pytest.approx((-0.001794, 0.011794), abs=1e-6)
    assert effect.p_equivalent(0.011794) == pytest.approx(
        0.05, abs=1e-4
    )  # the margin touches the 90 % interval
    assert effect.p_equivalent(0.02) == pytest.approx(0.0069, abs=2e-4)  # t = 0.015 / 0.0028868 = 5.196


def test_of_a_bootstrap_over_tasks():
    """A 95 % interval of +-0.098 has the standard error 0.05; 1.96 + 0.8416 of them are detected."""
    effect = Effect.of_bounds(0.1, 0.002, 0.198)
    assert (effect.error, effect.mde()) == pytest.approx((0.05, 0.14008), abs=1e-4)
    assert effect.p_value == pytest.approx(0.0455, abs=1e-4)  # two standard errors
    assert effect.power(0.14008) == pytest.approx(0.8, abs=1e-4)
    assert effect.power(0.0, 0.01) == pytest.approx(0.01, abs=1e-6)  # of nothing: the level


def test_power_of_seeds_is_that_of_the_minimum_detectable_effect():
    few = Effect.of_seeds([0.1, 0.2, 0.15])
    assert few.power(few.mde()) == pytest.approx(0.8, abs=1e-6)
    assert Effect.of_seeds([0.1, 0.1, 0.1]).power(0.1) == 1.0  # without spread


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
    """The p-value after correction is given, as of a family of one."""
    (compared,) = compare_effects([Effect(mean, error, recorded_p_value=corrected)], margin=0.02)
    assert compared.verdict == word


def test_a_family_is_what_can_be_tested_or_what_was_planned():
    """0.3, 0.4, 0.5 has p = 0.0202, a single seed none; Holm over one, and over a planned family of three."""
    effects = [Effect.of_seeds([0.3, 0.4, 0.5]), None, Effect.of_seeds([0.3])]
    first, nothing, single = compare_effects(effects)
    assert (first.p_adjusted, nothing) == (pytest.approx(0.02021, abs=1e-5), None)
    assert (first.verdict, single.verdict, single.p_adjusted) == ("ahead", "incomplete", None)
    planned = compare_effects(effects, tests=3)[0]
    assert (planned.verdict, planned.p_adjusted) == ("inconclusive", pytest.approx(3 * 0.02021, abs=3e-5))
    assert planned.mde == first.mde == first.mde_adjusted < planned.mde_adjusted


def test_equivalence_is_tested_only_where_there_is_a_margin():
    zero = Effect(0.0, 0.001)
    assert [one.verdict for one in compare_effects([zero, zero], margin=[0.02, None])] == [
        "equivalent",
        "inconclusive",
    ]


@pytest.mark.parametrize(
    "mean, word",
    [
        (0.05, "supported"),
        (-0.05, "rejected"),
        (0.015, "inconclusive"),  # 97 % reach to 0.0367, above the smallest advantage of 0.03
        (0.005, "rejected"),  # they reach to 0.0267
    ],
)
def test_a_claim_is_rejected_where_no_advantage_that_matters_is_left(mean, word):
    (compared,) = compare_effects([Effect(mean, 0.01)], alpha=0.03)
    assert claim_verdict(compared, 0.03) == word


def test_an_interval_against_a_number():
    measured = Interval(0.5, 0.4, 0.6, 3, "t, 3 seeds")
    assert [interval_verdict(measured, number) for number in (0.4, 0.3, 0.7)] == [
        "inconclusive",
        "ahead",
        "behind",
    ]
    assert interval_verdict(Interval(0.5, None, None, 1, ""), 0.5) == "incomplete"


def test_paired_difference_is_by_task_and_seed():
    ours = [[1, 1, 0, 1], [1, 0, 1, 1], [0, 1, 1, 0]]
    theirs = [[0, 1, 0, 1], [1, 0, 0, 0], [0, 0, 0, 0]]
    # seed means of the differences: 1/4, 2/4, 2/4; mean 5/12, sd = sqrt(1/48)
    difference = Effect.paired(ours, theirs).interval
    half = T_975_2 * math.sqrt(1 / 48) / math.sqrt(3)
    assert difference.mean == pytest.approx(5 / 12)
    assert difference.low == pytest.approx(5 / 12 - half, abs=1e-6)


def test_probability_of_improvement_counts_ties_half():
    # pairs: 2>1, 2=2, 3>1, 3>2: (3 + 0.5) / 4
    assert Effect.paired([[2], [3]], [[1], [2]]).probability_of_improvement == pytest.approx(3.5 / 4)
    assert Effect.paired([[1]], [[1]]).probability_of_improvement == 0.5


def test_paired_p_value():
    def p_value(values_S):
        return Effect.of_seeds(values_S).p_value

    # t = mean / (sd / sqrt n) = 0.4 / (0.1 / sqrt 3) = 6.928; two-sided p with 2 degrees of freedom 0.02021
    assert p_value([0.3, 0.4, 0.5]) == pytest.approx(0.02021, abs=1e-5)
    assert p_value([0.3]) is None
    assert p_value([0.0, 0.0, 0.0]) == 1.0
    assert p_value([0.1, 0.1, 0.1]) == 0.0


def test_two_seeds_that_differ_alike_by_chance_have_no_test():
    """Scores are counts of solved tasks, so two seeds often tie: a p-value of 0 no correction could remove.

    Of 10 comparisons without a true difference (200 tasks, both methods solve half) Holm's correction must
    find one in at most 5 % of trials; with ties as p = 0 it was 24 %.
    """
    tied = Effect.of_seeds([0.005, 0.005])
    assert (tied.p_value, tied.deviation, tied.seeds) == (None, None, 2)
    (judged,) = compare_effects([tied], margin=0.02)
    assert judged.verdict == "incomplete"
    draws = np.random.default_rng(0).binomial(200, 0.5, (500, 10, 2, 2)) / 200
    found = 0
    for family in draws[:, :, 0] - draws[:, :, 1]:
        found += any(one.significant for one in compare_effects([Effect.of_seeds(seeds) for seeds in family]))
    assert found / 500 < 0.05 + 3 * (0.05 * 0.95 / 500) ** 0.5
