"""Two audits of feedback: leaked answers, and agreement with the environment's own critic.

*Leaks.* A text that states the gold answer of a task is counted by how it does so. One that *tells* it (the answer
stands neither in the problem nor in the attempt) is dropped where its writer may have known the answer: an
environment's critic, a judge, or a model that was shown it. A model that found the answer by itself has leaked nothing.

*The environment's own critic as an oracle*: how good reflections and pivots are (paper, appendix: pivot accuracy). The
paper lets somebody judge reflections. Here a rule does: one that names the critic's pivot (within one turn) and the
critic's cause is ``accurate``, one of the two ``partial``, neither ``wrong``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from r3l.core.environment import Critique
from r3l.core.rollout import Episode, RolloutContext
from r3l.feedback.feedback import InvalidFeedback, ParsedReflection

LEAKED = InvalidFeedback("leak")
TOLERANCE = 1  # turns between a pivot and the oracle's; paper, appendix: "within one step"
GRADES = ("wrong", "partial", "accurate")  # by how much of pivot and cause is right


class Leak(StrEnum):
    """How a text states the answer."""

    TOLD = "told"  # it stands nowhere else
    QUOTED = "quoted"  # it stands in the problem or the attempt too: a number of the problem, say


def leak_of(text: str, answer: object, known: Iterable[str]) -> Leak | None:
    """How ``text`` states ``answer``: as whole words, whatever their case and spacing. ``known``: problem, attempt."""
    words = r"\s+".join(map(re.escape, str(answer).split()))
    stated = re.compile(rf"(?<!\w){words}(?!\w)", re.IGNORECASE)
    if not words or not stated.search(text):
        return None
    return Leak.QUOTED if any(map(stated.search, known)) else Leak.TOLD


def audit(ctx: RolloutContext, episode: Episode, text: str) -> Leak | None:
    """Count how ``text``, written on ``episode``, states the task's answer; None where there is none to state."""
    answer = episode.trajectory.task.payload.get("answer")
    if answer is None:
        return None
    turns = episode.trajectory.turns
    known = [episode.first.text, *(turn.observation for turn in turns), *(turn.response for turn in turns)]
    leak = leak_of(text, answer, known)
    ctx.counters["leak/guidance"] += 1
    ctx.counters["leak/answer_stated"] += int(leak is not None)
    if leak is not None:
        ctx.counters[f"leak/{leak}"] += 1
    return leak


@dataclass(frozen=True)
class Agreement:
    """How a reflection's pivot and cause compare with those of the critic."""

    exact: bool
    near: bool
    same_cause: bool

    @property
    def grade(self) -> str:
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
