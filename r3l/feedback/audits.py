"""Two audits of feedback: leaked answers, and agreement with the environment's own critic.

*Leaks.* Feedback that contains the gold answer of a task is counted. If the answer appears neither in the
problem nor in the attempt (``told``), and the writer may have known it (an environment's critic, a judge, or
a model that was shown it), the feedback is dropped. A model that finds the answer by itself leaks nothing.

*The environment's own critic as an oracle* for the quality of reflections and pivots (paper, appendix: pivot
accuracy). The paper has reflections judged by annotators. Here a rule does: a reflection that names the
critic's pivot (within one turn) and the critic's cause is ``accurate``, one of the two ``partial``, neither
``wrong``.
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
TOLERANCE = 1  # most turns between a right pivot and the oracle's (paper, appendix: "within one step")
GRADES = ("wrong", "partial", "accurate")  # by the number of right ones among pivot and cause


class Leak(StrEnum):
    """How feedback contains the gold answer.

    ``told``: it appears nowhere else. ``quoted``: it also appears in the problem or the attempt, such as a
    number of the problem.
    """

    TOLD = "told"
    QUOTED = "quoted"


def leak_of(text: str, answer: object, known: Iterable[str]) -> Leak | None:
    """How the feedback ``text`` gives away ``answer``; None if it does not contain it as complete words.

    ``known``: the texts of the problem and the attempt. An answer that also occurs there is only quoted
    (``QUOTED``), else it is leaked (``TOLD``). Case and spacing are ignored; an empty answer is never found.
    """
    words = r"\s+".join(map(re.escape, str(answer).split()))
    pattern = re.compile(rf"(?<!\w){words}(?!\w)", re.IGNORECASE)
    if not words or not pattern.search(text):
        return None
    if any(pattern.search(other) for other in known):
        return Leak.QUOTED
    return Leak.TOLD


def audit(ctx: RolloutContext, episode: Episode, text: str) -> Leak | None:
    """Search ``text``, feedback on ``episode``, for the task's gold answer (:func:`leak_of`).

    Counts the feedback and a leak in ``ctx.counters`` (``leak/...``). Returns None if the answer is not
    found; counts nothing and returns None for a task without ``answer`` in its payload.
    """
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
    """How far a reflection agrees with the environment's critic.

    ``exact``: same pivot, the turn to retry from; ``near``: at most one turn apart; ``same_cause``: the
    reflection's text on the cause contains the critic's, ignoring case.
    """

    exact: bool
    near: bool
    same_cause: bool

    @property
    def grade(self) -> str:
        """``accurate``: the pivot is near and the cause equal; ``partial``: one of these; else ``wrong``."""
        return GRADES[self.near + self.same_cause]


def agreement(critique: Critique | None, reflection: ParsedReflection) -> Agreement | None:
    """Compare the pivot (the turn to retry from) and the cause of a reflection with the critic's.

    ``critique``: what the environment's own critic says of the same episode. None if one of the two names no
    pivot.
    """
    if critique is None or critique.turn is None or reflection.pivot is None:
        return None
    return Agreement(
        critique.turn == reflection.pivot,
        is_right(reflection.pivot, critique.turn),
        critique.cause.lower() in reflection.root_cause.lower(),
    )


def is_right(pivot: int, oracle: int) -> bool:
    """Whether a pivot is at most one turn away from ``oracle``, the pivot of the environment's critic."""
    return abs(oracle - pivot) <= TOLERANCE


def grade_reflection(ctx: RolloutContext, base: Episode, reflection: ParsedReflection) -> int | None:
    """Compare a reflection on ``base`` with the environment's critic, and return the critic's pivot.

    Counts the agreement in ``ctx.counters`` (``pivot/...``, ``reflection_quality/...``). None, and nothing is
    counted, if the critic or the reflection names no pivot, the turn (from 0) to retry from.
    """
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
    """Count a retry and its success in ``ctx.counters``, as one from a right or from a wrong pivot.

    Its ``pivot`` is right if at most one turn from ``oracle``, the pivot of the environment's critic. Counts
    nothing if that is None.
    """
    if oracle is None:
        return
    side = "right" if is_right(pivot, oracle) else "wrong"
    ctx.counters[f"retry/{side}_pivot"] += 1
    ctx.counters[f"retry/{side}_pivot_success"] += int(success)
