"""Line: least squares and prediction intervals, by hand."""

import math

import numpy as np
import pytest
from scipy import stats

from r3l.stats.prediction import Line, leave_one_out, slope_within


def test_a_line_and_its_interval_by_hand():
    """x 0 to 3, y 0, 2, 1, 3: slope 4 / 5, residuals -0.3, 0.9, -0.9, 0.3, so the deviation is sqrt(1.8 / 2)."""
    line = Line.through([0, 1, 2, 3], [0, 2, 1, 3])
    assert (line.slope, line.intercept) == (pytest.approx(0.8), pytest.approx(0.3))
    assert line.deviation == pytest.approx(math.sqrt(0.9))
    expected = line.at(1.5)
    assert expected.value == pytest.approx(1.5)
    assert expected.high - expected.value == pytest.approx(4.302653 * math.sqrt(0.9 * 1.25), rel=1e-6)
    assert line.at(3).high - line.at(3).value > expected.high - expected.value  # wider away from the centre


def test_the_slope_and_its_interval_are_scipys():
    x, y = np.random.default_rng(0).normal(size=(2, 12))
    line, reference = Line.through(x, y), stats.linregress(x, y)
    half = stats.t.ppf(0.975, 10) * reference.stderr
    assert line.slope == pytest.approx(reference.slope)
    assert line.p_value == pytest.approx(reference.pvalue)
    assert line.slope_bounds == (pytest.approx(reference.slope - half), pytest.approx(reference.slope + half))


def test_a_slope_within_groups_ignores_how_the_groups_differ():
    """Slope 2 in both groups, but the group with the larger x lies lower: across them the slope is -0.7."""
    x, y = [0, 1, 3, 4], [8, 10, 5, 7]
    assert slope_within(x, y, ["a", "a", "b", "b"]) == pytest.approx(2)
    assert Line.through(x, y).slope == pytest.approx(-0.7)


def test_a_point_left_out_is_predicted_by_the_others():
    """Four points on y = x and one at (4, 0): it is predicted as 4, and the others bend the line."""
    found = leave_one_out([0, 1, 2, 3, 4], [0, 1, 2, 3, 0])
    assert found[4].value == pytest.approx(4) and found[4].low == pytest.approx(4)
    assert found[0].value != pytest.approx(0)


@pytest.mark.parametrize(
    ("x", "y"), [([], []), ([1], [2]), ([0, 1, 2, 3], [0, 1, 2, 3]), (list("01234"), [1])]
)
def test_too_few_points_to_leave_one_out_are_an_error(x, y):
    with pytest.raises(ValueError, match=f"needs 5 points or more, .* found {len(x)} and {len(y)}"):
        leave_one_out(x, y)


def test_intervals_cover_as_often_as_they_say():
    rng, inside = np.random.default_rng(1), 0
    for _ in range(1000):
        x, y = rng.normal(size=9), rng.normal(size=9)
        new = Line.through(x[:8], y[:8]).at(x[8])
        inside += new.low <= y[8] <= new.high
    assert 0.93 < inside / 1000 < 0.97


@pytest.mark.parametrize("x", [[1, 2, 3], [1, 1, 1, 1]])
def test_too_few_points_are_an_error(x):
    with pytest.raises(ValueError, match="a line needs 4 points"):
        Line.through(x, list(range(len(x))))
