"""Ours against a published number."""

from __future__ import annotations

import pytest

from r3l.evaluation.statistics import Interval
from r3l.report import published
from r3l.report.published import verdict


@pytest.fixture(scope="module")
def grpo():
    rows = [row for row in published.of_table("table1") if row.benchmark == "ALFWorld" and row.label == "GRPO"]
    return rows[0]  # 0.720


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0.70, 0.74, "within interval"), (0.72, 0.72, "within interval"), (0.60, 0.71, "outside"), (0.73, 0.9, "outside")],
)
def test_the_published_number_lies_in_our_interval_or_outside(grpo, low, high, expected):
    row = verdict.compare(grpo, Interval(0.70, low, high, 3, "t, 3 seeds"), 3, 3)
    assert (row["verdict"], row["verdict_reason"]) == (expected, "t, 3 seeds")
    assert (row["paper"], row["paper_metric"], row["paper_difference"]) == (0.72, "success", -0.02)


def test_too_few_seeds_are_incomplete_but_the_difference_is_shown(grpo):
    whole, single = Interval(0.75, 0.7, 0.8, 2, "t, 2 seeds"), Interval(0.75, None, None, 1, "n/a (1 seed)")
    for measured, done, planned, reason in ((whole, 2, 3, "2 of 3 seeds"), (single, 1, 1, "one seed has no interval")):
        row = verdict.compare(grpo, measured, done, planned)
        assert (row["verdict"], row["verdict_reason"]) == ("incomplete", reason)
        assert row["paper_difference"] == 0.03


def test_only_the_papers_tier_can_be_compared():
    assert verdict.other_tier("paper") is None
    row = verdict.not_comparable(verdict.other_tier("smol") or "")
    assert row["paper"] is None and row["verdict_reason"].startswith("smol tier")
