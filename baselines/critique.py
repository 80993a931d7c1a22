"""Critique: free text on a finished attempt, for methods that have no pivot (Critique-GRPO, RLTF).

The setting ``feedback`` says who writes it: the policy, the environment's own critic, or a judge.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from r3l.core.policy import Completion, FinishReason
from r3l.core.rollout import Episode, RolloutContext, play
from r3l.core.task import Task
from r3l.core.text import Message, after_thought
from r3l.core.trajectory import Trajectory, TrajectoryKind
from r3l.feedback.audits import LEAKED, Leak, audit
from r3l.feedback.feedback import (
    FeedbackSettings,
    FeedbackSource,
    InvalidFeedback,
    ParsedCritique,
    ParsedReflection,
    parse_reflection,
)
from r3l.feedback.feedback_dialog import FeedbackDialog, FeedbackRequest
from r3l.feedback.prompt_templates import template
from r3l.reflection import reflection_text, released_log, render_log
from r3l.retry import Restart, Retry, RetrySettings, hint, retry


class CritiqueSettings(FeedbackSettings, RetrySettings):
    """The options of criticising an attempt and trying again."""


@dataclass(frozen=True)
class Critique:
    """The guidance made from a critique, and the trajectory that trains writing it."""

    guidance: str
    trajectory: Trajectory


async def criticise(ctx: RolloutContext, episode: Episode, source: FeedbackSource) -> Critique | None:
    """A critique of a finished episode; None (counted) when it is empty or cut off, or reveals the answer."""
    dialog = FeedbackDialog.on(ctx, episode, TrajectoryKind.CRITIQUE)
    request = FeedbackRequest(
        _request(ctx, episode), partial(_instructions, ctx, episode), partial(_by_environment, ctx, episode)
    )
    written = await dialog.write(ctx, source, request)
    parsed = _parsed(ctx, written.completion, len(episode.trajectory.turns))
    if isinstance(parsed, ParsedCritique):
        leak = audit(ctx, episode, parsed.guidance)
        if leak is Leak.TOLD and written.author is not FeedbackSource.SELF:
            ctx.counters[f"critique/invalid/{LEAKED.reason}"] += 1
            parsed = LEAKED
    trajectory = dialog.close(ctx, written.completion, parsed)
    return None if isinstance(parsed, InvalidFeedback) else Critique(parsed.guidance, trajectory)


@dataclass(frozen=True)
class SecondTry:
    """An attempt; if it failed, also its critique and a second attempt from the start under that critique."""

    first: Trajectory
    critique: Critique | None = None
    second: Retry | None = None


async def try_twice(ctx: RolloutContext, task: Task, settings: CritiqueSettings, member: int) -> SecondTry:
    """A rollout; if it failed, a critique and a retry from the start."""
    episode = await play(ctx, task, member)
    first = episode.trajectory
    critique = None if first.success else await criticise(ctx, episode, settings.feedback)
    second = None if critique is None else await retry(ctx, episode, Restart(0, critique.guidance), settings)
    await episode.close()
    return SecondTry(first, critique, second)


def _request(ctx: RolloutContext, episode: Episode) -> list[Message]:
    trajectory = episode.trajectory
    if ctx.dialogue.style == "compact":
        return [Message("user", template("reflection_compact").substitute(feedback=trajectory.feedback))]
    if release := ctx.dialogue.release:
        log = released_log(release, trajectory, episode.prompts, trajectory.feedback)
        return release.critique(log, trajectory.reward)
    return _instructions(ctx, episode)


def _instructions(ctx: RolloutContext, episode: Episode) -> list[Message]:
    trajectory = episode.trajectory
    log = render_log(ctx.dialogue, trajectory, episode.first)
    return [Message("user", template("critique").substitute(log=log, feedback=trajectory.feedback))]


def _by_environment(ctx: RolloutContext, episode: Episode) -> str | None:
    critique = ctx.dialogue.critique(episode.transcript()) if episode.trajectory.turns else None
    if critique is None or not critique.suggestion:
        return None
    return reflection_text(critique) if ctx.dialogue.style == "compact" else critique.suggestion


def _parsed(ctx: RolloutContext, completion: Completion, turns: int) -> ParsedCritique | InvalidFeedback:
    """Compact critiques are JSON whose suggestion is the guidance; where it cannot be parsed, its text is."""
    text = after_thought(completion.text).strip()
    if completion.finish_reason is not FinishReason.END or not text:
        ended = completion.finish_reason is FinishReason.END
        ctx.counters[f"critique/invalid/{'empty' if ended else completion.finish_reason}"] += 1
        return InvalidFeedback(completion.finish_reason.value)
    if ctx.dialogue.release:
        return ParsedCritique(ctx.dialogue.release.refinement(text))
    reflection = parse_reflection(text, turns)
    if isinstance(reflection, ParsedReflection) and reflection.suggestion:
        ctx.count_replaced(reflection.replaced)
        return ParsedCritique(hint(reflection.suggestion))
    if ctx.dialogue.style == "compact":
        ctx.counters["critique/not_json"] += 1
        return ParsedCritique(hint(text))
    return ParsedCritique(template("guidance_critique").substitute(critique=text))
