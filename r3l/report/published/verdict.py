"""Ours against a published number: the columns that every table of ours has for it."""

from __future__ import annotations

from r3l.evaluation.statistics import Interval
from r3l.report.published import Published
from r3l.report.rows import DIGITS, LongRow

COLUMNS = ("paper", "paper_metric", "paper_difference", "verdict", "verdict_reason")


def not_comparable(reason: str) -> LongRow:
    """Nothing was published that ours could be held against."""
    return dict.fromkeys(COLUMNS) | {"verdict": "not comparable", "verdict_reason": reason}


def incomplete(published: Published | None, reason: str) -> LongRow:
    """The published number, with too little of ours to judge."""
    columns = dict.fromkeys(COLUMNS) | {"verdict": "incomplete", "verdict_reason": reason}
    return columns | ({"paper": float(published.value), "paper_metric": published.metric} if published else {})


def compare(published: Published, measured: Interval, done: int, planned: int) -> LongRow:
    """Whether the published number lies within our interval, which ``measured`` has in its metric."""
    if done < planned or measured.low is None or measured.high is None:
        reason = f"{done} of {planned} seeds" if done < planned else "one seed has no interval"
        columns = incomplete(published, reason)
    else:
        inside = measured.low <= float(published.value) <= measured.high
        columns = incomplete(published, measured.kind) | {"verdict": "within interval" if inside else "outside"}
    return columns | {"paper_difference": round(measured.mean - float(published.value), DIGITS)}


def other_tier(tier: str) -> str | None:
    """Why runs of ``tier`` cannot be held against the paper, or None."""
    return None if tier == "paper" else f"{tier} tier: neither the paper's models nor its games"
