"""Corrections for several tests, by hand."""

import pytest

from r3l.stats.corrections import benjamini_hochberg, holm, level_of_one_test


def test_holm_steps_down_and_keeps_the_order():
    # sorted 0.01 x 3, 0.02 x 2 = 0.04, 0.04 x 1 = 0.04
    assert holm([0.04, 0.01, 0.02]) == pytest.approx([0.04, 0.03, 0.04])
    assert holm([0.9, 0.8]) == pytest.approx([1.0, 1.0])
    assert holm([]) == []


def test_benjamini_hochberg_divides_by_the_rank_and_keeps_the_order():
    """Sorted 0.01, 0.02, 0.04 times 3/1, 3/2, 3/3."""
    assert benjamini_hochberg([0.04, 0.01, 0.02]) == pytest.approx([0.04, 0.03, 0.03])
    assert benjamini_hochberg([]) == []


def test_the_level_of_one_test():
    """Holm begins at alpha over the number of tests; Benjamini-Hochberg ends at that times its findings."""
    assert level_of_one_test(0.05, 10, 4, "holm") == pytest.approx(0.005)
    assert level_of_one_test(0.05, 10, 4, "benjamini-hochberg") == pytest.approx(0.02)
    assert level_of_one_test(0.05, 10, 0, "benjamini-hochberg") == pytest.approx(0.005)
