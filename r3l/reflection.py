"""Reflection (paper section 3.2, language-guided exploration): a structured diagnosis of a finished trajectory.

A reflection is one JSON object (r3l.core.reflections reads it). One that is not valid is counted by reason, and the
trajectory simply gets no retry.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel

from r3l.core.environment import Critique, Dialogue, Message, Observation
from r3l.core.feedback import Feedback, InvalidFeedback, ParsedReflection
from r3l.core.option import option
from r3l.core.policy import Completion, Conversation, FinishReason
from r3l.core.reflections import ReflectionRules, ReflectionSchema, parse_reflection
from r3l.core.released_prompts import Prompts, ReleasedPrompts
from r3l.core.rollout import Episode, RolloutContext
from r3l.core.seeds import Address
from r3l.core.task import Task
from r3l.core.templates import template
from r3l.core.trajectory import Trajectory, TrajectoryKind, Turn

Sees = Literal["none", "outcome", "answer"]
GuidanceForm = Literal["full_report", "suggestion", "none"]
DomainRule = Literal["own", "alfworld_everywhere"]


class ReflectionSettings(BaseModel):
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
        "our choice: what the prompt asks for (released code: keys whose values may be null)",
    )
    coerce_pivot: bool = option(
        True, 'read a pivot written as "3" or 3.0 (B-16)', "our choice (released code loses such retries)"
    )


RELEASED_DOMAIN = "ALFWorld"  # the released prompt names it in every environment (audit B-22)


@dataclass(frozen=True)
class Reflection:
    """A reflection as it was read, and the one-turn-trainable trajectory that teaches to write it."""

    parsed: ParsedReflection | InvalidFeedback
    trajectory: Trajectory

    @property
    def perfect(self) -> bool:
        """It is valid, and says that nothing needs improving."""
        return isinstance(self.parsed, ParsedReflection) and self.parsed.perfect


def reflection_text(critique: Critique) -> str:
    """``critique`` as the text of a reflection. Start models were taught on these keys, in this order."""
    return json.dumps(
        {
            "trajectory_summary": critique.summary,
            "root_cause_analysis": critique.cause,
            "trajectory_outcome": critique.outcome,
            "improvement_suggestion": critique.suggestion,
            "retry_from_step": critique.turn,
        }
    )


@dataclass(frozen=True)
class FeedbackDialog:
    """The dialog in which feedback on a finished episode is written, and the turns that already stand in it.

    ``compact`` prompts continue the episode's own dialog (nothing is encoded twice); others open a
    new dialog around a numbered log, as the original does. ``attempt`` tells several reflections on one
    episode apart.
    """

    base: Trajectory
    kind: TrajectoryKind
    conversation: Conversation
    turns: list[Turn]
    attempt: tuple[int, ...] = ()

    @classmethod
    def on(
        cls, ctx: RolloutContext, episode: Episode, kind: TrajectoryKind, attempt: tuple[int, ...] = ()
    ) -> FeedbackDialog:
        """That on a finished episode, before anything is asked."""
        base = episode.trajectory
        if ctx.dialogue.style == "compact":
            return cls(base, kind, episode.conversation.fork(len(base.turns)), list(base.turns), attempt)
        return cls(base, kind, ctx.policy.open(), [], attempt)

    async def ask(self, ctx: RolloutContext) -> Completion:
        """What the policy writes after the messages added so far."""
        where: Address = (self.base.task.id, self.base.member, *self.attempt)
        return await ctx.complete(self.conversation, ctx.feedback_sampling, self.kind.value, *where)

    def close(self, ctx: RolloutContext, completion: Completion, parsed: Feedback) -> Trajectory:
        """The trajectory that teaches to write ``completion`` (only that turn is trained), noted in ``ctx``."""
        self.conversation.close()
        start = len(self.turns)
        sample = Trajectory(
            self.base.task,
            self.base.member,
            self.kind,
            [*self.turns, Turn.of(completion, self.base.feedback)],
            restart_turn=start,
            trainable=range(start, start + 1),
            attempt=self.attempt,
            parsed=parsed,
        )
        ctx.trajectories.append(sample)
        return sample


async def reflect(
    ctx: RolloutContext, episode: Episode, settings: ReflectionSettings, attempt: tuple[int, ...] = ()
) -> Reflection:
    """Ask the policy for a reflection on a finished episode; counts its validity by reason."""
    base = episode.trajectory
    dialog = FeedbackDialog.on(ctx, episode, TrajectoryKind.REFLECTION, attempt)
    for message in reflection_request(ctx.dialogue, base, episode.first, settings, episode.prompts):
        dialog.conversation.add(message)
    completion = await dialog.ask(ctx)
    rules = ReflectionRules(
        settings.reflection_schema, settings.coerce_pivot, suggestion=not ctx.dialogue.suggestion_optional
    )
    parsed = _parsed(completion, len(base.turns), rules)
    _count(ctx, parsed)
    if isinstance(parsed, ParsedReflection) and parsed.suggestion:
        count_leak(ctx, base.task, parsed.suggestion)
    return Reflection(parsed, dialog.close(ctx, completion, parsed))


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
    domain = dialogue.domain if settings.reflection_domain == "own" else RELEASED_DOMAIN
    system = template("reflection_system").substitute(domain=domain, last_step=len(trajectory.turns) - 1)
    log = render_log(dialogue, trajectory, first)
    request = template("reflection_request").substitute(log=log, feedback=feedback)
    return [Message("system", system), Message("user", request)]


def shown_feedback(trajectory: Trajectory, sees: Sees) -> str:
    """What a reviewer is told of the outcome. The gold answer is ``payload["answer"]`` of tasks that have one."""
    if sees == "none":
        return "(not shown)"
    answer = trajectory.task.payload.get("answer")
    if sees == "answer" and answer is not None:
        return f"{trajectory.feedback} The correct answer is {answer}."
    return trajectory.feedback


def count_leak(ctx: RolloutContext, task: Task, guidance: str) -> None:
    """Leakage audit: guidance that states the gold answer, as a whole word and whatever its case."""
    answer = task.payload.get("answer")
    if answer is None:
        return
    stated = re.search(rf"(?<!\w){re.escape(str(answer).strip())}(?!\w)", guidance, re.IGNORECASE)
    ctx.counters["leak/guidance"] += 1
    ctx.counters["leak/answer_stated"] += int(stated is not None)


def released_log(release: ReleasedPrompts, trajectory: Trajectory, prompts: Prompts, feedback: str) -> str:
    """The dialog as the release writes it for a reviewer."""
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
    if completion.finish_reason is FinishReason.LENGTH and rules.schema == "strict":
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
