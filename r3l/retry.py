"""Retry (paper section 3.2): restart at the pivot under guidance, then take the guidance out (distillation).

The environment is rewound and the dialog forked, so a retry neither re-encodes nor re-samples its prefix.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Literal

from r3l.core.environment import Message
from r3l.core.policy import Sampling
from r3l.core.rollout import Arena, Decorate, Episode, continue_episode
from r3l.core.trajectory import Trajectory
from r3l.reflection import Report
from r3l.templates import template

GuidanceForm = Literal["full_report", "suggestion"]
GuidancePlace = Literal["system_message", "user_turn"]


def guidance_text(report: Report, form: GuidanceForm) -> str:
    """The words that guide a retry: the whole report (released code) or its suggestion only (audit B-37)."""
    if form == "suggestion":
        return template("guidance_compact").substitute(suggestion=report.suggestion)
    return template("guidance_released").substitute(report=json.dumps(report.content, indent=2))


def with_guidance(guidance: str, place: GuidancePlace) -> Decorate:
    """Insert guidance into the messages of the pivot turn.

    ``system_message``: at the end of the system prompt when the retry starts over, else as a system message
    of its own before the observation (released code). ``user_turn``: at the head of the user message, for
    templates that allow no system message in mid-dialog (audit B-33).
    """

    def decorate(messages: list[Message]) -> list[Message]:
        *before, user = messages
        if place == "user_turn":
            return [*before, replace(user, content=f"{guidance}\n{user.content}")]
        if before:
            system = before[-1]
            return [*before[:-1], replace(system, content=f"{system.content}\n\n{guidance}"), user]
        return [Message("system", guidance), user]

    return decorate


async def retry(arena: Arena, base: Episode, pivot: int, decorate: Decorate, sampling: Sampling) -> Trajectory:
    """Play ``base``'s task again from turn ``pivot`` with guidance in that turn's prompt.

    Returns the guided trajectory (kind ``guided_retry``). The base's environment is used up. Raises
    ReplayMismatch when the restored observation is not the recorded one.
    """
    now = await base.env.rewind(pivot)
    source = base.trajectory
    guided = Trajectory(source.task, source.member, "guided_retry", list(source.turns[:pivot]), pivot=pivot)
    conversation = base.conversation.fork(pivot)
    episode = Episode(guided, base.env, conversation, base.first)
    await continue_episode(arena, episode, now, sampling, "retry", decorate)
    conversation.close()
    return guided


def distil(guided: Trajectory, base: Trajectory) -> Trajectory:
    """Context distillation: the retry as if it had needed no guidance.

    Only the pivot turn's prompt differs, and the base trajectory holds its clean form. Log-probabilities of
    the regenerated turns are those under guidance; methods without importance ratios do not read them.
    """
    turns = list(guided.turns)
    p = guided.pivot
    if p < len(turns):
        turns[p] = replace(turns[p], prompt_ids=base.turns[p].prompt_ids)
    return replace(guided, kind="distilled", turns=turns)
