"""Critique: free text on a finished attempt, for methods that have no pivot (Critique-GRPO, RLTF).

It comes from the environment's own critic where there is one and it is wanted, else from the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from r3l.core.environment import Message
from r3l.core.policy import Completion
from r3l.core.rollout import Episode, RolloutContext, play
from r3l.core.task import Task
from r3l.core.templates import template
from r3l.core.trajectory import Trajectory
from r3l.reflection import Report, as_sample, parse_reflection, reflection_text, render_log, review_dialog
from r3l.retry import Retry, RetrySettings, hint, retry

Critic = Literal["environment_or_model", "model"]


@dataclass(frozen=True)
class Critique:
    """The guidance made from a critique, and the trajectory that teaches to write it."""

    guidance: str
    trajectory: Trajectory


async def criticise(ctx: RolloutContext, episode: Episode, critic: Critic) -> Critique | None:
    """A critique of a finished episode; None (counted) when the model leaves it empty or unfinished."""
    trajectory = episode.trajectory
    conversation, earlier = review_dialog(ctx, episode)
    for message in _request(ctx, episode):
        conversation.add(message)
    said = _by_environment(ctx, episode) if critic == "environment_or_model" else None
    if said is not None:
        completion = conversation.write(said)
        ctx.counters["critique/by_environment"] += 1
    else:
        where = (trajectory.task.id, trajectory.member)
        completion = await ctx.complete(conversation, ctx.feedback_sampling, "critique", *where)
        ctx.counters["critique/by_model"] += 1
    conversation.close()
    guidance = _guidance(ctx, completion, len(trajectory.turns))
    report = {"invalid": completion.stop_reason} if guidance is None else {"guidance": guidance}
    sample = as_sample(ctx, trajectory, "critique", earlier, completion, report)
    return None if guidance is None else Critique(guidance, sample)


@dataclass(frozen=True)
class SecondTry:
    """An attempt, and where it failed its critique and the attempt made from the start under it."""

    first: Trajectory
    critique: Critique | None = None
    second: Retry | None = None


async def try_twice(ctx: RolloutContext, task: Task, member: int, critic: Critic, settings: RetrySettings) -> SecondTry:
    """A rollout; if it failed, a critique and a retry from the start."""
    episode = await play(ctx, task, member)
    found = SecondTry(episode.trajectory)
    critique = None if found.first.success else await criticise(ctx, episode, critic)
    if critique is not None:
        second = await retry(ctx, episode, 0, critique.guidance, settings)
        found = SecondTry(found.first, critique, second)
    await episode.close()
    return found


def _request(ctx: RolloutContext, episode: Episode) -> list[Message]:
    trajectory = episode.trajectory
    if ctx.dialogue.style == "compact":
        return [Message("user", template("reflection_compact").substitute(feedback=trajectory.feedback))]
    log = render_log(ctx.dialogue, trajectory, episode.first)
    return [Message("user", template("critique").substitute(log=log, feedback=trajectory.feedback))]


def _by_environment(ctx: RolloutContext, episode: Episode) -> str | None:
    critique = ctx.dialogue.critique(episode.ended()) if episode.trajectory.turns else None
    if critique is None or not critique.suggestion:
        return None
    return reflection_text(critique) if ctx.dialogue.style == "compact" else critique.suggestion


def _guidance(ctx: RolloutContext, completion: Completion, turns: int) -> str | None:
    """Compact reviews are JSON, of which the suggestion guides; a review that cannot be read guides by its text."""
    text = completion.text.strip()
    if completion.stop_reason != "end" or not text:
        ctx.counters[f"critique/invalid/{'empty' if completion.stop_reason == 'end' else completion.stop_reason}"] += 1
        return None
    report = parse_reflection(text, turns)
    if isinstance(report, Report) and report.suggestion:
        return hint(report.suggestion)
    if ctx.dialogue.style == "compact":
        ctx.counters["critique/not_json"] += 1
        return hint(text)
    return template("guidance_critique").substitute(critique=text)
