"""The environment's own critic as an oracle: how good reflections and pivots are (paper, appendix: pivot accuracy).

Only counted; nothing learns from it. The paper lets somebody judge reflections. Here a rule does: one that names the
critic's pivot (within one turn) and the critic's cause is ``accurate``, one of the two ``partial``, neither ``wrong``.
"""

from __future__ import annotations

from r3l.core.feedback import ParsedReflection
from r3l.core.rollout import Episode, RolloutContext

TOLERANCE = 1  # turns between a pivot and the oracle's; paper, appendix: "within one step"
GRADES = ("wrong", "partial", "accurate")  # by how much of pivot and cause is right


def grade_reflection(ctx: RolloutContext, base: Episode, reflection: ParsedReflection) -> int | None:
    """Count how ``reflection`` compares with the oracle's critique; the oracle's pivot, None where it names none."""
    critique = ctx.dialogue.critique(base.transcript())
    if critique is None or critique.turn is None or reflection.pivot is None:
        return None
    near = abs(critique.turn - reflection.pivot) <= TOLERANCE
    same_cause = critique.cause.lower() in reflection.root_cause.lower()
    ctx.counters["pivot/with_oracle"] += 1
    ctx.counters["pivot/oracle_agrees"] += int(critique.turn == reflection.pivot)
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
