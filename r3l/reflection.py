"""Reflection (paper section 3.2, language-guided exploration): a structured diagnosis of a trajectory.

A reflection is one JSON object, which r3l.feedback.feedback parses. An invalid one is counted by reason, and
its trajectory gets no retry.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from pydantic import ValidationInfo, field_validator

from r3l.core.environment import Critique, Dialogue, FeedbackPrompts, Observation, Prompts
from r3l.core.option import option
from r3l.core.policy import FinishReason
from r3l.core.rollout import Episode, RolloutContext
from r3l.core.seeds import generator
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
    """Options of reflections: which rollouts get one, what its writer sees, which parts guide a retry.

    ``feedback_corruption`` above 0 is refused (ValidationError) unless ``feedback`` is ``environment``.

    - ``reflection_sees``: ``none`` (only the episode), ``outcome`` (the environment's closing message too) or
      ``answer`` (the gold answer as well).
    - ``reflection_domain``: ``own`` (each environment's name) or ``alfworld_everywhere``.
    - ``guidance``: ``full_report`` (the reflection's complete text), ``suggestion`` (only its hint) or
      ``none`` (the retry reads no hint).
    - ``reflection_schema``: ``strict`` (JSON with all requested fields), ``released`` (null values pass) or
      ``lines`` (four lines, each with a key, for small models).
    """

    feedback_corruption: float = option(
        0.0,
        "share of the environment critic's reflections that get the pivot and hint of another task",
        "our experiment (0: the critic as it is)",
        ge=0,
        le=1,
    )

    reflect_when: Literal["always", "failed_only"] = option(
        "always",
        "which rollouts are reflected on (B-37)",
        "released code: always (README pseudo-code: failures only)",
    )
    reflection_sees: Sees = option(
        "outcome",
        "what the writer sees: nothing, the outcome, or also the task's gold answer",
        "released code: the environment's closing feedback (audit 1.1)",
    )
    reflection_domain: DomainRule = option(
        "own",
        "domain named in the prompt (B-22)",
        "our choice: each environment names itself (released prompt: ALFWorld everywhere)",
    )
    guidance: GuidanceForm = option(
        "full_report",
        "part of the reflection that guides a retry (B-37)",
        "released code: the complete JSON (audit 3.8)",
    )
    reflection_schema: ReflectionSchema = option(
        "strict",
        "required fields of a reflection (B-41)",
        "our choice: what the prompt requests (released code: null values pass); lines: for small models",
    )
    coerce_pivot: bool = option(
        True, 'read a pivot written as "3" or 3.0 (B-16)', "our choice (released code loses such retries)"
    )

    @field_validator("feedback_corruption")
    @classmethod
    def _only_of_the_critic(cls, value: float, fields: ValidationInfo) -> float:
        if value and fields.data.get("feedback") is not FeedbackSource.ENVIRONMENT:
            raise ValueError(
                "it is about the environment's critic: set feedback=environment too, or leave it at 0"
            )
        return value


# Line of the ``lines`` schema that asks for a pivot; episodes of one step have no choice, so it is left out
# there.
STEP = "\nStep: the number of the first step to take differently (0 to {})"
START = ', beginning with "Outcome: failure" or "Outcome: success"'
RELEASED_DOMAIN = "ALFWorld"  # the released prompt names it in every environment (audit B-22)


@dataclass(frozen=True)
class Reflection:
    """A reflection: parsed (or why it is invalid), its author, and the dialog in which it was written.

    ``trajectory``: that dialog as a training sample; only its last turn, the reflection, carries gradient.
    """

    parsed: ParsedReflection | InvalidFeedback
    trajectory: Trajectory
    author: FeedbackSource

    @property
    def perfect(self) -> bool:
        """True if the reflection is valid and finds nothing to improve."""
        return isinstance(self.parsed, ParsedReflection) and self.parsed.perfect


def reflection_text(critique: Critique, schema: ReflectionSchema = "strict") -> str:
    """An environment's ``critique`` as the text of a reflection in ``schema``: JSON, or lines for ``lines``.

    It has the keys, in the order, that base checkpoints learn from demonstrations. JSON has null for a
    missing suggestion or turn; lines leave these out, and always the summary.
    """
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
    """Have a reflection on a finished episode written, parse it and check it.

    ``settings.feedback`` names the author: the policy itself, the environment's critic or a judge.
    ``attempt``: tells several reflections on one episode apart in seed addresses. A reflection that cannot be
    parsed, or that reveals the gold answer to the retry, is returned as invalid, with the reason. Counts
    under ``reflection/`` in ``ctx.counters``, and adds its trajectory to ``ctx.trajectories``. Raises
    ConfigError for a judge if none is connected.
    """
    base = episode.trajectory
    critique = None
    if settings.feedback is FeedbackSource.ENVIRONMENT and base.turns:
        critique = await critic_verdict(ctx, episode, settings.feedback_corruption, attempt)

    # Write it: the policy, the environment's critic or a judge (see FeedbackDialog).
    def by_environment() -> str | None:
        return None if critique is None else reflection_text(critique, settings.reflection_schema)

    dialog = FeedbackDialog.on(ctx, episode, TrajectoryKind.REFLECTION, attempt)
    request = FeedbackRequest(
        messages=reflection_request(ctx.dialogue, base, episode.first, settings, episode.prompts),
        instructions=partial(full_instructions, ctx.dialogue, base, episode.first, settings),
        by_environment=by_environment,
    )
    written = await dialog.write(ctx, settings.feedback, request)

    # Parse it. The released parser also accepts a text that was cut off.
    rules = ReflectionRules(
        settings.reflection_schema,
        settings.coerce_pivot,
        suggestion=not ctx.dialogue.suggestion_optional,
        one_step=ctx.dialogue.max_turns == 1,
    )
    parsed: ParsedReflection | InvalidFeedback
    ended = written.completion.finish_reason
    if ended is FinishReason.LENGTH and rules.schema != "released":
        parsed = InvalidFeedback("truncated")
    elif ended not in (FinishReason.END, FinishReason.LENGTH):
        parsed = InvalidFeedback(ended.value)
    else:
        parsed = parse_reflection(written.completion.text, len(base.turns), rules)

    # Reject it if it reveals the gold answer to the retry and its writer may have been shown that answer.
    if isinstance(parsed, ParsedReflection) and (parsed.suggestion or settings.guidance == "full_report"):
        guiding = parsed.suggestion or ""
        if settings.guidance == "full_report":  # whatever else it says is read by the retry too
            guiding = "\n".join(f"{key} {value}" for key, value in parsed.document.items())
        leak = audit(ctx, episode, guiding)
        may_know_answer = written.author is not FeedbackSource.SELF or settings.reflection_sees == "answer"
        if leak is Leak.TOLD and may_know_answer:
            parsed = LEAKED

    ctx.counters["reflection/count"] += 1
    if isinstance(parsed, InvalidFeedback):
        ctx.counters[f"reflection/invalid/{parsed.reason}"] += 1
    else:
        ctx.counters["reflection/valid"] += 1
        ctx.counters[f"reflection/outcome/{parsed.outcome}"] += 1
        ctx.counters["reflection/coerced"] += int(parsed.coerced)
        ctx.count_replaced(parsed.replaced)
    return Reflection(parsed, dialog.close(ctx, written.completion, parsed), written.author)


async def critic_verdict(
    ctx: RolloutContext, episode: Episode, corruption: float, attempt: tuple[int, ...] = ()
) -> Critique | None:
    """The critique of a finished episode by the environment's critic; None if it gives none.

    A share ``corruption`` (0 to 1) of the critiques is made misleading: summary and outcome stay, but cause,
    pivot and hint are what the critic would say if the same actions had been an attempt at another task of
    ``ctx.tasks``, drawn by seed. A critique stays unchanged if the critic names no pivot for one of the two
    tasks. Misleading critiques are counted under ``reflection/corrupted``.
    """
    transcript = episode.transcript()
    verdict = ctx.dialogue.critique(transcript)
    task = transcript.task
    member = episode.trajectory.member
    others = [other for other in ctx.tasks if other.id != task.id]
    draws = generator(*ctx.address, "corruption", task.address, member, *attempt)
    if verdict is None or verdict.turn is None or not others or draws.random() >= corruption:
        return verdict

    # The critic reads the other task in its first observation, so start that task.
    other = others[int(draws.integers(len(others)))]
    env = ctx.pool.open()
    first = ctx.seen(await env.reset(other))
    await env.close()
    mistaken = ctx.dialogue.critique(replace(transcript, task=other, first=first.text, success=False))
    if mistaken is None or mistaken.turn is None:
        return verdict
    ctx.counters["reflection/corrupted"] += 1
    return replace(verdict, cause=mistaken.cause, suggestion=mistaken.suggestion, turn=mistaken.turn)


def reflection_request(
    dialogue: Dialogue,
    trajectory: Trajectory,
    first: Observation,
    settings: ReflectionSettings,
    prompts: Prompts,
) -> list[Message]:
    """The messages that ask the policy for a reflection on a finished episode.

    Their style follows the environment's prompts (``dialogue.style``): the released code's words, or a
    short request that follows the episode's dialog (``compact``), or complete instructions with a log of it.
    ``first``: the episode's first observation. ``prompts``: the messages before each of its responses.
    """
    feedback = shown_feedback(trajectory, settings.reflection_sees)
    if dialogue.release:
        return dialogue.release.reflection(released_log(dialogue.release, trajectory, prompts, feedback))
    if dialogue.style == "compact":
        return [Message("user", template("reflection_compact").substitute(feedback=feedback))]
    return full_instructions(dialogue, trajectory, first, settings)


def full_instructions(
    dialogue: Dialogue, trajectory: Trajectory, first: Observation, settings: ReflectionSettings
) -> list[Message]:
    """The request for a reflection in our own words: a system message with instructions, and a user message.

    The user message has the log of the complete episode ``trajectory`` and its outcome; ``first``: its first
    observation.
    """
    feedback = shown_feedback(trajectory, settings.reflection_sees)
    domain = dialogue.domain if settings.reflection_domain == "own" else RELEASED_DOMAIN
    lines = settings.reflection_schema == "lines"
    last_step = len(trajectory.turns) - 1
    system = template("reflection_lines" if lines else "reflection_system").substitute(
        domain=domain, last_step=last_step, step=STEP.format(last_step) if last_step else ""
    )
    log = render_log(dialogue, trajectory, first)
    request = template("reflection_request").substitute(
        log=log, feedback=feedback, form="" if lines else "JSON ", start=START if lines else ""
    )
    return [Message("system", system), Message("user", request)]


def shown_feedback(trajectory: Trajectory, sees: Sees) -> str:
    """The text on an episode's outcome that a reflection prompt shows.

    ``sees``: with ``none`` "(not shown)"; with ``outcome`` the environment's closing feedback; with
    ``answer`` also the gold answer ``task.payload["answer"]``, if the task has one.
    """
    if sees == "none":
        return "(not shown)"
    answer = trajectory.task.payload.get("answer")
    if sees == "answer" and answer is not None:
        return f"{trajectory.feedback} The correct answer is {answer}."
    return trajectory.feedback


def released_log(release: FeedbackPrompts, trajectory: Trajectory, prompts: Prompts, feedback: str) -> str:
    """The log of an episode as the paper's released code shows it in prompts for reflections and critiques.

    ``release``: that code's prompts. ``prompts``: the messages before each response of ``trajectory``.
    ``feedback``: text on the outcome, which ends the log.
    """
    turns = trajectory.turns  # fewer than prompts if the last prompt outgrew the context and has no response
    return release.log(prompts[: len(turns)], [turn.response for turn in turns], feedback)


def render_log(dialogue: Dialogue, trajectory: Trajectory, first: Observation) -> str:
    """The episode as a text in our own words: task and first observation, then "Step k: response" by turn.

    Each response (from 0) follows the observation that it answers. ``first``: the first observation.
    """
    opening = "\n".join(m.content for m in dialogue.opening(trajectory.task, first))
    lines = [f"Task and first observation:\n{opening}"]
    for k, turn in enumerate(trajectory.turns):
        if k:
            lines.append(f"Observation: {turn.observation}")
        lines.append(f"Step {k}: {turn.response}")
    return "\n\n".join(lines)
