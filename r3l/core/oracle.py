"""The environment's own critic as an oracle: how good reflections and pivots are (paper, appendix: pivot accuracy).

Only counted; nothing learns from it. The paper lets somebody judge reflections. Here a rule does: one that names the
critic's pivot (within one turn) and the critic's cause is ``accurate``, one of the two ``partial``, neither ``wrong``.
"""

from __future__ import annotations

from dataclasses import dataclass

from r3l.core.environment import Critique
from r3l.core.feedback import ParsedReflection
from r3l.core.rollout import Episode, RolloutContext

TOLERANCE = 1  # turns between a pivot and the oracle's; paper, appendix: "within one step"
GRADES = ("wrong", "partial", "accurate")  # by how much of pivot and cause is right


@dataclass(frozen=True)
class Agreement:
    """How a reflection's pivot and cause compare with those of the critic."""

    exact: bool
    near: bool
    same_cause: bool

    @property
    def grade(self) -> str:
        """One of GRADES."""
        return GRADES[self.near + self.same_cause]


def agreement(critique: Critique | None, reflection: ParsedReflection) -> Agreement | None:
    """None where one of the two names no pivot."""
    if critique is None or critique.turn is None or reflection.pivot is None:
        return None
    return Agreement(
        critique.turn == reflection.pivot,
        is_right(reflection.pivot, critique.turn),
        critique.cause.lower() in reflection.root_cause.lower(),
    )


def is_right(pivot: int, oracle: int) -> bool:
    """Whether a pivot is the oracle's, within one turn."""
    return abs(oracle - pivot) <= TOLERANCE


def grade_reflection(ctx: RolloutContext, base: Episode, reflection: ParsedReflection) -> int | None:
    """Count how ``reflection`` compares with the oracle's critique; the oracle's pivot, None where it names none."""
    critique = ctx.dialogue.critique(base.transcript())
    agrees = agreement(critique, reflection)
    if critique is None or agrees is None:
        return None
    ctx.counters["pivot/with_oracle"] += 1
    ctx.counters["pivot/oracle_agrees"] += int(agrees.exact)
    ctx.counters["pivot/oracle_near"] += int(agrees.near)
    ctx.counters[f"reflection_quality/{agrees.grade}"] += 1
    return critique.turn


def count_retry(ctx: RolloutContext, pivot: int, oracle: int | None, success: bool) -> None:
    """Count a retry from ``pivot`` as from a right or a wrong one; without an oracle as neither."""
    if oracle is None:
        return
    side = "right" if is_right(pivot, oracle) else "wrong"
    ctx.counters[f"retry/{side}_pivot"] += 1
    ctx.counters[f"retry/{side}_pivot_success"] += int(success)
