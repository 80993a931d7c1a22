"""Retry (paper section 3.2): restart at the pivot under guidance, then take the guidance out (distillation).

The environment is rewound and the dialog forked, so a retry neither re-encodes nor re-samples its prefix.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import BaseModel

from r3l.core.environment import Message
from r3l.core.option import option
from r3l.core.policy import PHASES
from r3l.core.rollout import Decorate, Episode, RolloutContext, Rules, continue_episode
from r3l.core.seeds import generator
from r3l.core.templates import template
from r3l.core.trajectory import Trajectory
from r3l.reflection import GuidanceForm, Report

GuidancePlace = Literal["system_message", "user_turn"]
PivotRule = Literal["reflected", "start", "random", "oracle"]


class RetrySettings(BaseModel):
    """The options of retrying, wherever it starts."""

    guidance_place: GuidancePlace = option(
        "user_turn",
        "where guidance stands in the dialog (B-33)",
        "our choice: some chat templates forbid a system message in mid-dialog",
    )
    retry_rules: Rules = option(
        "same_as_base",
        "ending rules of a retry (B-7)",
        "paper: one environment (released ALFWorld retries are more lenient)",
    )
    rescore_distilled: bool = option(
        False,
        "old log-probs of a distilled retry: without its guidance",
        "not read where the loss of a retry has no importance ratio (R3L: paper; Critique-GRPO: audit 0.6)",
    )


class PivotSettings(RetrySettings):
    """The options of retrying from a pivot."""

    pivot: PivotRule = option("reflected", "where a retry starts (B-5 for start)", "paper: the reflection's pivot")
    replay_duplicate_obs: bool = option(
        False, "show the pivot's observation twice (B-6)", "our choice (released code shows it twice)"
    )


@dataclass(frozen=True)
class Retry:
    """A retry as it was played, and as if it had needed no guidance."""

    guided: Trajectory
    distilled: Trajectory


def choose_pivot(
    rule: PivotRule, reported: int, oracle: int | None, base: Trajectory, ctx: RolloutContext
) -> int | None:
    """The turn to restart from; ``random`` is uniform; ``oracle`` is None where there is none (counted)."""
    if rule == "start":
        return 0
    if rule == "random":
        return int(generator(*ctx.address, "pivot", base.task.id, base.member).integers(len(base.turns)))
    if rule == "oracle" and oracle is None:
        ctx.counters["dropped/no_oracle_pivot"] += 1
    return oracle if rule == "oracle" else reported


def guidance_text(report: Report, form: GuidanceForm) -> str | None:
    """The words that guide a retry: the whole report (released code) or its suggestion only (audit B-37)."""
    if form == "none":
        return None
    if form == "suggestion":
        return hint(str(report.suggestion))
    return template("guidance_released").substitute(report=json.dumps(report.content, indent=2))


def hint(suggestion: str) -> str:
    """Guidance in one line."""
    return template("guidance_compact").substitute(suggestion=suggestion)


def with_guidance(guidance: str | None, place: GuidancePlace, twice: bool = False) -> Decorate:
    """Insert guidance into the messages of the pivot turn; returns them with and without it.

    ``system_message``: at the end of the system prompt when the retry starts over, else as a system message
    of its own before the observation (released code). ``user_turn``: at the head of the user message, for
    templates that allow no system message in mid-dialog (audit B-33). Between two lines of a response it is a message
    of its own. ``twice``: in mid-dialog the observation stands there once more before the guidance (audit B-6).
    """

    def decorate(messages: list[Message]) -> tuple[list[Message], list[Message]]:
        if not messages:  # in the middle of a response, which simply goes on without guidance
            role = "user" if place == "user_turn" else "system"
            return [Message(role, guidance)] if guidance else [], []
        *before, user = messages
        copied = [user] if twice else []
        clean = [*before, *copied, user]
        if guidance is None:
            return clean, clean
        if place == "user_turn":
            return [*before, *copied, replace(user, content=f"{guidance}\n{user.content}")], clean
        if before:
            system = before[-1]
            return [*before[:-1], replace(system, content=f"{system.content}\n\n{guidance}"), user], clean
        return [*copied, Message("system", guidance), user], clean

    return decorate


async def retry(
    ctx: RolloutContext,
    base: Episode,
    pivot: int,
    guidance: str | None,
    settings: RetrySettings,
    attempt: tuple[int, ...] = (),
    twice: bool = False,
) -> Retry:
    """Play ``base``'s task again from turn ``pivot`` with guidance in that turn's prompt (see :func:`with_guidance`).

    Beside the dialog goes its clean twin, whose prompts the distilled trajectory gets: context distillation. The
    base's environment is used up by a retry (a further one may rewind it again). Raises ReplayMismatch when the
    restored observation is not the recorded one.
    """
    now = await base.env.rewind(pivot)
    source = base.trajectory
    kept = list(source.turns[:pivot])
    guided = Trajectory(source.task, source.member, "guided_retry", kept, pivot=pivot, attempt=attempt)
    conversation, clean = base.conversation.fork(pivot), base.conversation.fork(pivot)
    episode = Episode(guided, base.env, conversation, base.first, clean=clean)
    decorate = with_guidance(guidance, settings.guidance_place, twice and pivot > 0)
    sampling = replace(ctx.sampling, phase=PHASES.index("retry"))
    await continue_episode(ctx, episode, now, sampling, "retry", decorate, settings.retry_rules, attempt)
    conversation.close()
    clean.close()
    _count(ctx, source, guided, pivot)
    return Retry(guided, _distilled(guided, episode.clean_prompts, settings.rescore_distilled))


def _distilled(guided: Trajectory, prompts: list[tuple[int, ...]], rescore: bool) -> Trajectory:
    kept, new = guided.turns[: guided.pivot], guided.turns[guided.pivot :]
    turns = [*kept, *(replace(turn, prompt_ids=ids) for turn, ids in zip(new, prompts, strict=True))]
    return replace(guided, kind="distilled", turns=turns, rescore=rescore)


def _count(ctx: RolloutContext, base: Trajectory, again: Trajectory, pivot: int) -> None:
    ctx.counters["retry/count"] += 1
    ctx.counters["retry/success"] += int(again.success)
    ctx.counters["retry/improved"] += int(again.reward > base.reward)
    ctx.counters["retry/worse"] += int(again.reward < base.reward)
    ctx.counters["retry/gain"] += again.reward - base.reward
    ctx.counters["retry/after_failure"] += int(not base.success)
    ctx.counters["retry/rescued"] += int(again.success and not base.success)
    ctx.counters["pivot/turns"] += pivot
    ctx.counters["pivot/base_turns"] += len(base.turns)
