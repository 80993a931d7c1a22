"""Corrections for several tests, by hand."""

import pytest

from r3l.stats.comparison import Effect, adjusted, compare_effects


def test_holm_steps_down_and_keeps_the_order():
    # sorted 0.01 x 3, 0.02 x 2 = 0.04, 0.04 x 1 = 0.04
    assert adjusted([0.04, 0.01, 0.02], "holm") == pytest.approx([0.04, 0.03, 0.04])
    assert adjusted([0.9, 0.8], "holm") == pytest.approx([1.0, 1.0])
    assert adjusted([], "holm") == []


def test_benjamini_hochberg_divides_by_the_rank_and_keeps_the_order():
    """Sorted 0.01, 0.02, 0.04 times 3/1, 3/2, 3/3."""
    assert adjusted([0.04, 0.01, 0.02], "benjamini-hochberg") == pytest.approx([0.04, 0.03, 0.03])
    assert adjusted([], "benjamini-hochberg") == []


def test_the_level_of_one_test():
    """Holm begins at alpha over the number of tests; Benjamini-Hochberg ends at that times its findings."""
    ahead, level = Effect(2.0, 0.1), Effect(0.0, 0.1)
    for found, correction, expected in (
        (4, "holm", 0.005),
        (4, "benjamini-hochberg", 0.02),
        (0, "benjamini-hochberg", 0.005),
    ):
        family = compare_effects([ahead] * found + [level] * (10 - found), correction=correction, alpha=0.05)
        assert sum(one.significant for one in family) == found
        assert all(one.level == pytest.approx(expected) for one in family)
