"""Reflection (paper section 3.2, language-guided exploration): a structured diagnosis of a finished trajectory.

A reflection is one JSON object (r3l.feedback.feedback reads it). An invalid one is counted by reason, and the
trajectory gets no retry.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import Literal

from r3l.core.environment import Critique, Dialogue, FeedbackPrompts, Observation, Prompts
from r3l.core.option import option
from r3l.core.policy import Completion, FinishReason
from r3l.core.rollout import Episode, RolloutContext
from r3l.core.text import Message
from r3l.core.trajectory import Trajectory, TrajectoryKind
from r3l.feedback.audits import LEAKED, Leak, audit
from r3l.feedback.feedback import (
    FeedbackSettings,
    FeedbackSource,
    InvalidFeedback,
    ParsedReflection,
    ReflectionRules,
    ReflectionSchema,
    parse_reflection,
    reflection_lines,
)
from r3l.feedback.feedback_dialog import FeedbackDialog, FeedbackRequest
from r3l.feedback.prompt_templates import template

Sees = Literal["none", "outcome", "answer"]
GuidanceForm = Literal["full_report", "suggestion", "none"]
DomainRule = Literal["own", "alfworld_everywhere"]


class ReflectionSettings(FeedbackSettings):
    """The options of reflecting."""

    reflect_when: Literal["always", "failed_only"] = option(
        "always", "which rollouts are reflected on (B-37)", "released code: always (README pseudo-code: failures only)"
    )
    reflection_sees: Sees = option(
        "outcome",
        "nothing, the outcome, or also the gold answer where a task has one",
        "released code: the environment's closing feedback (audit 1.1)",
    )
    reflection_domain: DomainRule = option(
        "own",
        "domain named in the prompt (B-22)",
        "our choice: each environment names itself (released prompt: ALFWorld everywhere)",
    )
    guidance: GuidanceForm = option(
        "full_report", "what of the reflection guides a retry (B-37)", "released code: the whole JSON (audit 3.8)"
    )
    reflection_schema: ReflectionSchema = option(
        "strict",
        "what a report must hold (B-41)",
        "our choice: what the prompt asks for (released code: keys whose values may be null); lines: for small models",
    )
    coerce_pivot: bool = option(
        True, 'read a pivot written as "3" or 3.0 (B-16)', "our choice (released code loses such retries)"
    )


STEP = "\nStep: the number of the first step to take differently (0 to {})"  # where there are several
START = ', beginning with "Outcome: failure" or "Outcome: success"'
RELEASED_DOMAIN = "ALFWorld"  # the released prompt names it in every environment (audit B-22)


@dataclass(frozen=True)
class Reflection:
    """A parsed reflection, and the trajectory that trains writing it (one trainable turn)."""

    parsed: ParsedReflection | InvalidFeedback
    trajectory: Trajectory

    @property
    def perfect(self) -> bool:
        """It is valid, and says that nothing needs improving."""
        return isinstance(self.parsed, ParsedReflection) and self.parsed.perfect


def reflection_text(critique: Critique, schema: ReflectionSchema = "strict") -> str:
    """``critique`` as the text of a reflection. Base checkpoints were taught these keys, in this order."""
    document = {
        "trajectory_summary": critique.summary,
        "root_cause_analysis": critique.cause,
        "trajectory_outcome": critique.outcome,
        "improvement_suggestion": critique.suggestion,
        "retry_from_step": critique.turn,
    }
    return reflection_lines(document) if schema == "lines" else json.dumps(document)


async def reflect(
    ctx: RolloutContext, episode: Episode, settings: ReflectionSettings, attempt: tuple[int, ...] = ()
) -> Reflection:
    """A reflection on a finished episode, written by the source that ``feedback`` names; invalid ones are counted."""
    base = episode.trajectory
    dialog = FeedbackDialog.on(ctx, episode, TrajectoryKind.REFLECTION, attempt)
    request = FeedbackRequest(
        reflection_request(ctx.dialogue, base, episode.first, settings, episode.prompts),
        partial(_instructions, ctx.dialogue, base, episode.first, settings),
        partial(_by_environment, ctx.dialogue, episode, settings.reflection_schema),
    )
    written = await dialog.write(ctx, settings.feedback, request)
    rules = ReflectionRules(
        settings.reflection_schema,
        settings.coerce_pivot,
        suggestion=not ctx.dialogue.suggestion_optional,
        one_step=ctx.dialogue.max_turns == 1,
    )
    parsed = _parsed(written.completion, len(base.turns), rules)
    if isinstance(parsed, ParsedReflection) and parsed.suggestion:
        leak = audit(ctx, episode, _guiding(parsed, settings))
        taught = written.author is not FeedbackSource.SELF or settings.reflection_sees == "answer"
        parsed = LEAKED if leak is Leak.TOLD and taught else parsed
    _count(ctx, parsed)
    return Reflection(parsed, dialog.close(ctx, written.completion, parsed))


def _guiding(reflection: ParsedReflection, settings: ReflectionSettings) -> str:
    """The part of a reflection that a retry may read."""
    whole = settings.guidance == "full_report"
    parts = (reflection.summary, reflection.root_cause) if whole else ()
    return "\n".join((*parts, reflection.suggestion or ""))


def _by_environment(dialogue: Dialogue, episode: Episode, schema: ReflectionSchema) -> str | None:
    critique = dialogue.critique(episode.transcript()) if episode.trajectory.turns else None
    return None if critique is None else reflection_text(critique, schema)


def reflection_request(
    dialogue: Dialogue,
    trajectory: Trajectory,
    first: Observation,
    settings: ReflectionSettings,
    prompts: Prompts,
) -> list[Message]:
    """The messages that ask for a reflection on an ended episode, which began with ``first``.

    ``prompts``: what was shown before each response.
    """
    feedback = shown_feedback(trajectory, settings.reflection_sees)
    if dialogue.release:
        return dialogue.release.reflection(released_log(dialogue.release, trajectory, prompts, feedback))
    if dialogue.style == "compact":
        return [Message("user", template("reflection_compact").substitute(feedback=feedback))]
    return _instructions(dialogue, trajectory, first, settings)


def _instructions(
    dialogue: Dialogue, trajectory: Trajectory, first: Observation, settings: ReflectionSettings
) -> list[Message]:
    """The full request in our own words, around a log."""
    feedback = shown_feedback(trajectory, settings.reflection_sees)
    domain = dialogue.domain if settings.reflection_domain == "own" else RELEASED_DOMAIN
    lines, last_step = settings.reflection_schema == "lines", len(trajectory.turns) - 1
    system = template("reflection_lines" if lines else "reflection_system").substitute(
        domain=domain, last_step=last_step, step=STEP.format(last_step) if last_step else ""
    )
    log = render_log(dialogue, trajectory, first)
    form, start = ("", START) if lines else ("JSON ", "")
    request = template("reflection_request").substitute(log=log, feedback=feedback, form=form, start=start)
    return [Message("system", system), Message("user", request)]


def shown_feedback(trajectory: Trajectory, sees: Sees) -> str:
    """The outcome as a reviewer sees it. The gold answer is ``payload["answer"]`` of tasks that have one."""
    if sees == "none":
        return "(not shown)"
    answer = trajectory.task.payload.get("answer")
    if sees == "answer" and answer is not None:
        return f"{trajectory.feedback} The correct answer is {answer}."
    return trajectory.feedback


def released_log(release: FeedbackPrompts, trajectory: Trajectory, prompts: Prompts, feedback: str) -> str:
    """The dialog in the release's format for a reviewer."""
    turns = trajectory.turns  # a prompt that outgrew the context was never answered
    return release.log(prompts[: len(turns)], [turn.response for turn in turns], feedback)


def render_log(dialogue: Dialogue, trajectory: Trajectory, first: Observation) -> str:
    """The dialog as numbered text: the opening, then each response and the observation it answered."""
    opening = "\n".join(m.content for m in dialogue.opening(trajectory.task, first))
    lines = [f"Task and first observation:\n{opening}"]
    for k, turn in enumerate(trajectory.turns):
        if k:
            lines.append(f"Observation: {turn.observation}")
        lines.append(f"Step {k}: {turn.response}")
    return "\n\n".join(lines)


def _parsed(completion: Completion, turns: int, rules: ReflectionRules) -> ParsedReflection | InvalidFeedback:
    if completion.finish_reason is FinishReason.LENGTH and rules.schema != "released":
        return InvalidFeedback("truncated")
    if completion.finish_reason not in (FinishReason.END, FinishReason.LENGTH):
        return InvalidFeedback(completion.finish_reason.value)
    return parse_reflection(completion.text, turns, rules)


def _count(ctx: RolloutContext, parsed: ParsedReflection | InvalidFeedback) -> None:
    ctx.counters["reflection/count"] += 1
    if isinstance(parsed, InvalidFeedback):
        ctx.counters[f"reflection/invalid/{parsed.reason}"] += 1
        return
    ctx.counters["reflection/valid"] += 1
    ctx.counters[f"reflection/outcome/{parsed.outcome}"] += 1
    ctx.counters["reflection/coerced"] += int(parsed.coerced)
    ctx.count_replaced(parsed.replaced)
