"""Critique: free text on a finished attempt, for methods without a pivot (Critique-GRPO, RLTF).

The setting ``feedback`` says who writes it: the policy, the environment's own critic, or a judge.
"""

from __future__ import annotations

from dataclasses import dataclass

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
    """Options of critiques (who writes them) and of the second attempt under one, from the base classes."""


@dataclass(frozen=True)
class GuidingCritique:
    """A valid critique.

    ``guidance``: the text that the second attempt reads. ``trajectory``: its dialog, by which the policy may
    learn to write critiques.
    """

    guidance: str
    trajectory: Trajectory


@dataclass(frozen=True)
class SecondTry:
    """An attempt and, if it failed, its critique and a second attempt from the start under that critique.

    ``critique`` is None if the attempt succeeded, its environment broke down, or the critique is invalid.
    ``second`` is None if ``critique`` is, or if the environment broke down in the second attempt.
    """

    first: Trajectory
    critique: GuidingCritique | None = None
    second: Retry | None = None


async def try_twice(ctx: RolloutContext, task: Task, settings: CritiqueSettings, member: int) -> SecondTry:
    """Play a rollout; if it fails, have it criticised by ``settings.feedback`` and retry from the start.

    ``member``: index of the rollout within its task, part of its seed address. Nothing follows a
    rollout whose environment broke down. Both attempts and the critique are counted and logged in ``ctx``.
    """
    episode = await play(ctx, task, member)
    critique = None
    second = None
    if not (episode.trajectory.success or episode.trajectory.failed):
        critique = await criticise(ctx, episode, settings.feedback)
        if critique is not None:
            played = await retry(ctx, episode, Restart(0, critique.guidance), settings)
            second = None if played.guided.failed else played
    await episode.close()
    return SecondTry(episode.trajectory, critique, second)


async def criticise(ctx: RolloutContext, episode: Episode, source: FeedbackSource) -> GuidingCritique | None:
    """Have a finished episode criticised by ``source`` (the policy, a judge or the environment's critic).

    Returns the guidance made from the critique, and the trajectory that trains to write it (also logged in
    ``ctx``). None if the critique is cut off, empty or reveals the gold answer, which ``ctx.counters`` counts
    by reason. Raises ConfigError for a judge if none is connected.
    """
    trajectory = episode.trajectory
    dialogue = ctx.dialogue

    # The request: for the policy in the style of the run's prompts, for a judge with complete instructions.
    def instructions() -> list[Message]:
        log = render_log(dialogue, trajectory, episode.first)
        return [Message("user", template("critique").substitute(log=log, feedback=trajectory.feedback))]

    def by_environment() -> str | None:
        critique = dialogue.critique(episode.transcript()) if trajectory.turns else None
        if critique is None or not critique.suggestion:
            return None
        return reflection_text(critique) if dialogue.style == "compact" else critique.suggestion

    if dialogue.style == "compact":
        messages = [Message("user", template("reflection_compact").substitute(feedback=trajectory.feedback))]
    elif dialogue.release:
        log = released_log(dialogue.release, trajectory, episode.prompts, trajectory.feedback)
        messages = dialogue.release.critique(log, trajectory.reward)
    else:
        messages = instructions()

    # Write it and make guidance of it, unless a writer who may know the gold answer reveals it.
    dialog = FeedbackDialog.on(ctx, episode, TrajectoryKind.CRITIQUE)
    written = await dialog.write(ctx, source, FeedbackRequest(messages, instructions, by_environment))
    parsed = _parsed(ctx, written.completion, len(trajectory.turns))
    if isinstance(parsed, ParsedCritique):
        leak = audit(ctx, episode, parsed.guidance)
        if leak is Leak.TOLD and written.author is not FeedbackSource.SELF:
            ctx.counters[f"critique/invalid/{LEAKED.reason}"] += 1
            parsed = LEAKED
    sample = dialog.close(ctx, written.completion, parsed)
    return None if isinstance(parsed, InvalidFeedback) else GuidingCritique(parsed.guidance, sample)


def _parsed(ctx: RolloutContext, completion: Completion, turns: int) -> ParsedCritique | InvalidFeedback:
    """Make guidance of a critique; one that is cut off or empty is invalid, and counted."""
    text = after_thought(completion.text).strip()
    ended = completion.finish_reason is FinishReason.END
    if not ended or not text:
        reason = "empty" if ended else completion.finish_reason.value
        ctx.counters[f"critique/invalid/{reason}"] += 1
        return InvalidFeedback(reason)
    if ctx.dialogue.release:
        return ParsedCritique(ctx.dialogue.release.refinement(text))

    # A compact critique is a JSON reflection, whose suggestion is the guidance. Other text is guidance as it
    # is.
    reflection = parse_reflection(text, turns)
    if isinstance(reflection, ParsedReflection) and reflection.suggestion:
        ctx.count_replaced(reflection.replaced)
        return ParsedCritique(hint(reflection.suggestion))
    if ctx.dialogue.style == "compact":
        ctx.counters["critique/not_json"] += 1
        return ParsedCritique(hint(text))
    return ParsedCritique(template("guidance_critique").substitute(critique=text))
