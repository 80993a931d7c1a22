"""Reflection (paper section 3.2, language-guided exploration): a structured diagnosis of a finished trajectory.

A reflection is one JSON object. It is *valid* when the required keys are there, the outcome is one of three
words and, unless the outcome is ``success``, there is a suggestion and a pivot that names a played turn.
Everything else is counted by reason and the trajectory simply gets no retry.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from r3l.core.environment import Dialogue, Message
from r3l.core.policy import Completion
from r3l.core.rollout import Arena, Episode
from r3l.core.trajectory import Trajectory, Turn
from r3l.templates import template

OUTCOMES = ("success", "success_but_inefficient", "failure")
REQUIRED = ("trajectory_summary", "root_cause_analysis", "trajectory_outcome")


@dataclass(frozen=True)
class Report:
    """A valid reflection. ``pivot`` (0-based turn) and ``suggestion`` are None iff ``perfect``."""

    outcome: str
    suggestion: str | None
    pivot: int | None
    content: dict[str, Any]
    coerced: bool = False

    @property
    def perfect(self) -> bool:
        """The reflection says that nothing needs improving."""
        return self.outcome == "success"


@dataclass(frozen=True)
class Invalid:
    """A reflection that cannot be used, and the countable reason."""

    reason: str


@dataclass(frozen=True)
class Reflection:
    """A reflection with its text, and the one-turn-trainable trajectory that teaches to write it."""

    verdict: Report | Invalid
    trajectory: Trajectory


def parse_reflection(text: str, turns: int) -> Report | Invalid:
    """Read a reflection of a trajectory of ``turns`` responses. Never raises on any string.

    The JSON is what stands between the first "{" and the last "}" (released code). A pivot written as
    "3" or 3.0 is coerced once and marked (audit B-16).
    """
    start, end = text.find("{"), text.rfind("}")
    if start < 0 or end < start:
        return Invalid("no_json")
    try:
        content = json.loads(text[start : end + 1])
    except (ValueError, RecursionError):
        return Invalid("bad_json")
    missing = [key for key in REQUIRED if content.get(key) is None]
    if missing:
        return Invalid(f"missing_{missing[0]}")
    outcome = content["trajectory_outcome"]
    if outcome not in OUTCOMES:
        return Invalid("bad_outcome")
    if outcome == "success":
        return Report(outcome, None, None, content)
    return _with_pivot(outcome, content, turns)


def _with_pivot(outcome: str, content: dict[str, Any], turns: int) -> Report | Invalid:
    suggestion = content.get("improvement_suggestion")
    if not isinstance(suggestion, str) or not suggestion.strip():
        return Invalid("missing_improvement_suggestion")
    raw = content.get("retry_from_step")
    pivot = _as_int(raw)
    if pivot is None:
        return Invalid("missing_retry_from_step" if raw is None else "bad_retry_from_step")
    if not 0 <= pivot < turns:
        return Invalid("pivot_out_of_range")
    coerced = not isinstance(raw, int)
    return Report(outcome, suggestion, pivot, {**content, "retry_from_step": pivot}, coerced)


def _as_int(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, int):
        return value
    try:
        number = float(value)
    except ValueError:
        return None
    return int(number) if number.is_integer() else None


async def reflect(arena: Arena, episode: Episode) -> Reflection:
    """Ask the policy for a reflection on a finished episode; counts its validity by reason.

    ``compact`` prompts continue the episode's own dialog (nothing is encoded twice); ``released`` prompts open
    a new dialog around a numbered log, as the original does.
    """
    trajectory = episode.trajectory
    continues = arena.dialogue.style == "compact"
    conversation = episode.conversation if continues else arena.policy.open()
    for message in _request(arena.dialogue, trajectory, episode):
        conversation.add(message)
    completion = await arena.complete(
        conversation, arena.feedback_sampling, "reflection", trajectory.task.id, trajectory.member
    )
    if not continues:
        conversation.close()
    verdict = _judge(completion, len(trajectory.turns))
    _count(arena, verdict)
    earlier = trajectory.turns if continues else []
    return Reflection(verdict, _as_sample(trajectory, earlier, completion))


def _request(dialogue: Dialogue, trajectory: Trajectory, episode: Episode) -> list[Message]:
    if dialogue.style == "compact":
        request = template("reflection_compact").substitute(feedback=trajectory.feedback)
        return [Message("user", request)]
    system = template("reflection_system").substitute(domain=dialogue.domain, last_step=len(trajectory.turns) - 1)
    log = render_log(dialogue, trajectory, episode)
    request = template("reflection_request").substitute(log=log, feedback=trajectory.feedback)
    return [Message("system", system), Message("user", request)]


def render_log(dialogue: Dialogue, trajectory: Trajectory, episode: Episode) -> str:
    """The dialog as numbered text: the opening, then each response and the observation it answered."""
    opening = "\n".join(m.content for m in dialogue.opening(trajectory.task, episode.first))
    lines = [f"Task and first observation:\n{opening}"]
    for k, turn in enumerate(trajectory.turns):
        if k:
            lines.append(f"Observation: {turn.observation}")
        lines.append(f"Step {k}: {turn.response}")
    return "\n\n".join(lines)


def _judge(completion: Completion, turns: int) -> Report | Invalid:
    if completion.stop_reason != "end":
        return Invalid("truncated" if completion.stop_reason == "length" else completion.stop_reason)
    return parse_reflection(completion.text, turns)


def _count(arena: Arena, verdict: Report | Invalid) -> None:
    arena.counters["reflection/count"] += 1
    if isinstance(verdict, Invalid):
        arena.counters[f"reflection/invalid/{verdict.reason}"] += 1
        return
    arena.counters["reflection/valid"] += 1
    arena.counters[f"reflection/outcome/{verdict.outcome}"] += 1
    arena.counters["reflection/coerced"] += int(verdict.coerced)


def _as_sample(base: Trajectory, earlier: list[Turn], completion: Completion) -> Trajectory:
    turn = Turn.of(completion, base.feedback)
    return Trajectory(base.task, base.member, "reflection", [*earlier, turn], pivot=len(earlier))
