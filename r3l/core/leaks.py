"""The audit of feedback for leaked answers, and the one rule of what becomes of it.

A text that states the gold answer of a task is counted by how it does so. One that *tells* it (the answer stands
neither in the problem nor in the attempt) is dropped where its writer may have known the answer: an environment's
critic, a judge, or a model that was shown it. A model that found the answer by itself has leaked nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum

from r3l.core.feedback import InvalidFeedback
from r3l.core.rollout import Episode, RolloutContext

LEAKED = InvalidFeedback("leak")


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
