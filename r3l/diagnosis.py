"""How good reflections are: held against the environment's own critic (paper, appendix: pivots and an oracle).

Only counted; nothing learns from it. The paper lets somebody judge diagnoses. Here a rule does: the critic's pivot
(within one turn) and the critic's cause make a diagnosis ``accurate``, one of the two ``partial``, neither ``wrong``.
"""

from __future__ import annotations

from r3l.core.rollout import Episode, RolloutContext
from r3l.reflection import Report

TOLERANCE = 1  # turns between a pivot and the oracle's; paper, appendix: "within one step"
GRADES = ("wrong", "partial", "accurate")  # by how much of pivot and cause is right


def diagnose(report: Report, base: Episode, ctx: RolloutContext) -> int | None:
    """Count how ``report`` compares with the critic's; the critic's pivot, or None where it has none."""
    critique = ctx.dialogue.critique(base.ended())
    if critique is None or critique.turn is None or report.pivot is None:
        return None
    near = abs(critique.turn - report.pivot) <= TOLERANCE
    same_cause = critique.cause.lower() in str(report.content["root_cause_analysis"]).lower()
    ctx.counters["pivot/with_oracle"] += 1
    ctx.counters["pivot/oracle_agrees"] += int(critique.turn == report.pivot)
    ctx.counters["pivot/oracle_near"] += int(near)
    ctx.counters[f"reflection_quality/{GRADES[near + same_cause]}"] += 1
    return critique.turn


def count_retry(ctx: RolloutContext, pivot: int, oracle: int | None, success: bool) -> None:
    """Count a retry from ``pivot`` as from a right or a wrong one; without an oracle as neither."""
    if oracle is None:
        return
    side = "right" if abs(oracle - pivot) <= TOLERANCE else "wrong"
    ctx.counters[f"retry/{side}_pivot"] += 1
    ctx.counters[f"retry/{side}_pivot_success"] += int(success)
