"""What a curve and its band are, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from r3l.report.figures import series
from r3l.report.updates import WINDOW


class Columns(dict):
    """Metrics of updates, from a dict of each: NaN where an update lacks one."""

    def __init__(self, rows):
        self.updates = len(rows)
        self.rows = rows

    def __missing__(self, name):
        return np.array([row.get(name, np.nan) for row in self.rows], dtype=float)

    def counts(self, name):
        return np.array([row.get(name, 0) for row in self.rows], dtype=float)


def metrics(*rows):
    return Columns(rows)


def flat(level, count=2, **more):
    return metrics(*({"y": level, **more} for _ in range(count)))


def curve_of(rows, value, advance=series.updates, window=WINDOW):
    return series.curve(rows, value(rows, window), advance)


def test_a_value_is_the_mean_of_the_last_updates():
    curve = curve_of(metrics({"y": 0}, {"y": 1}, {"y": 2}), series.mean_of("y"), window=2)
    assert curve.y.tolist() == [0, 0.5, 1.5] and curve.x.tolist() == [1, 2, 3]


def test_updates_without_a_value_are_left_out_and_none_at_all_is_no_curve():
    rows = ({"y": 1}, {}, {"y": 3})
    curve = curve_of(metrics(*rows), series.mean_of("y"), window=1)
    assert curve.updates.tolist() == [1, 3] and curve.y.tolist() == [1, 3]
    assert curve_of(metrics(*rows), series.mean_of("z")) is None
    assert curve_of(metrics({"rollouts": 8}), series.rate_of("retry_gain")) is None


def test_counts_are_summed_before_a_rate_is_made_of_them():
    rows = ({"rollouts": 12, "retry/count": 4}, {"rollouts": 4}, {"rollouts": 8, "retry/count": 6}, {})
    curve = curve_of(metrics(*rows), series.rate_of("retry_trigger"), window=2)
    assert curve.updates.tolist() == [1, 2, 3, 4]
    assert curve.y.tolist() == [4 / (12 - 4), 4 / (16 - 4), 6 / (12 - 6), 6 / (8 - 6)]


def test_seeds_meet_after_equal_updates_whatever_they_spent():
    spent = [flat(level, 3, **{"tokens/generated": tokens}) for level, tokens in ((0.2, 1000), (0.4, 3000))]
    band = series.band([curve_of(r, series.mean_of("y"), series.tokens) for r in spent])
    assert band.x.tolist() == [2, 4, 6] and band.mean == pytest.approx([0.3] * 3)  # thousands
