"""Power of the paired t-test: published sample sizes, numbers by hand, and simulated experiments."""

import numpy as np
import pytest
from scipy import stats

from r3l.stats.comparison import Effect, minimum_detectable_effect, power_of
from r3l.stats.power import StoppingRule, seeds_needed, spread_factors


@pytest.mark.parametrize(("standardised", "pairs"), [(0.2, 199), (0.5, 34), (0.8, 15), (1.0, 10)])
def test_the_sample_sizes_of_the_literature(standardised, pairs):
    """Cohen 1988 and every table since: pairs for small, medium and large effects at 5 % and 80 %."""
    assert seeds_needed(1, standardised) == pairs
    assert power_of(standardised, pairs) >= 0.8 > power_of(standardised, pairs - 1)


@pytest.mark.parametrize("seeds", [3, 5, 20])
@pytest.mark.parametrize("standardised", [0.05, 0.3, 1.0])
def test_it_is_the_tail_of_the_noncentral_t_where_that_can_be_computed(standardised, seeds):
    critical, delta = stats.t.ppf(0.975, seeds - 1), standardised * np.sqrt(seeds)
    tails = stats.nct.sf(critical, seeds - 1, delta) + stats.nct.cdf(-critical, seeds - 1, delta)
    assert power_of(standardised, seeds) == pytest.approx(tails, abs=1e-6)


def test_five_seeds_show_1_68_standard_deviations():
    assert minimum_detectable_effect(5) == pytest.approx(1.681997, abs=1e-5)
    scaled = Effect.of_seeds([1, 2, 3, 4, 5])  # with their spread, which is sqrt(2.5)
    assert scaled.mde() == pytest.approx(2.5**0.5 * 1.681997, abs=1e-5)
    sizes = [minimum_detectable_effect(seeds) for seeds in range(2, 30)]
    assert sizes == sorted(sizes, reverse=True)
    # many seeds: (z(0.975) + z(0.8)) / sqrt(n) = (1.95996 + 0.84162) / sqrt(n)
    assert minimum_detectable_effect(10_000) == pytest.approx(2.80159 / 100, rel=1e-3)


def test_the_standard_deviation_of_five_seeds_is_known_within_a_factor_of_three():
    """chi-square quantiles with 4 degrees of freedom (tables): 0.484419 and 11.143287."""
    assert Effect.of_seeds([1, 2, 3, 4, 5]).deviation == pytest.approx(2.5**0.5)
    assert spread_factors(5) == pytest.approx(((4 / 11.143287) ** 0.5, (4 / 0.484419) ** 0.5), rel=1e-6)


@pytest.mark.parametrize(
    ("deviation", "seeds", "due"),
    [
        (0.02, 3, 2),  # the first block is not full
        (0.02, 5, 0),  # 0.038 can be shown
        (0.03, 5, 5),  # 0.057
        (0.03, 10, 0),  # 0.033
        (0.09, 15, 5),
        (0.09, 18, 2),
        (0.09, 20, 0),  # 0.064, but twenty are the most
        (None, 5, 5),  # all seeds alike: nothing to judge by
    ],
)
def test_the_stopping_rule_by_hand(deviation, seeds, due):
    rule = StoppingRule()
    assert rule.seeds_due(deviation, seeds) == due


def test_false_claims_after_the_stopping_rule_stay_below_five_percent():
    """Without a difference, at the spread that is worst for it; a test at 5 % would err in 7.5 %."""
    experiments, rule = 10_000, StoppingRule()
    drawn = np.random.default_rng(2).normal(0, 0.05, (experiments, rule.most))
    p_values = np.ones(experiments)
    running = np.ones(experiments, dtype=bool)
    for seeds in range(rule.block, rule.most + 1, rule.block):
        so_far = drawn[:, :seeds]
        # The rule of seeds_due, for all experiments at once.
        enough = rule.difference / minimum_detectable_effect(seeds, rule.alpha)
        stops = running & ((so_far.std(axis=1, ddof=1) <= enough) | (seeds == rule.most))
        p_values[stops] = stats.ttest_1samp(so_far[stops], 0, axis=1).pvalue
        running &= ~stops
    error = np.sqrt(0.05 * 0.95 / experiments)
    assert np.mean(p_values < rule.alpha) < 0.05 + 3 * error
    assert np.mean(p_values < 0.05) > 0.065
