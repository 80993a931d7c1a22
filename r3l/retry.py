"""Retry (paper section 3.2): restart at the pivot under guidance, then remove it (context distillation).

The environment is rewound and the dialog forked, so a retry neither re-encodes nor re-samples its prefix.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Literal

from r3l.core.environment import FeedbackPrompts
from r3l.core.option import OptionModel, option
from r3l.core.policy import Phase
from r3l.core.rollout import Continuation, Episode, Guide, Prompt, RolloutContext, Rules, continue_episode
from r3l.core.seeds import generator
from r3l.core.text import Message
from r3l.core.trajectory import Trajectory, TrajectoryKind
from r3l.feedback.feedback import ParsedReflection
from r3l.feedback.prompt_templates import template
from r3l.reflection import ReflectionSettings

GuidancePlace = Literal["system_message", "user_turn"]
PivotRule = Literal["reflected", "start", "random", "oracle"]
ReplayRule = Literal["whole", "until_refused"]


class RetrySettings(OptionModel):
    """Options of retries that start anywhere: where guidance is inserted, by which rules they end.

    ``guidance_place``: ``user_turn`` or ``system_message``. ``retry_rules``: ``same_as_base``, or
    ``released_lenient``, under which some invalid responses only cost a turn.
    """

    guidance_place: GuidancePlace = option(
        "user_turn",
        "where guidance is inserted in the dialog (B-33)",
        "our choice: some chat templates forbid a system message in mid-dialog",
    )
    retry_rules: Rules = option(
        "same_as_base",
        "ending rules of a retry (B-7)",
        "paper: one environment (released ALFWorld retries are more lenient)",
    )
    rescore_distilled: bool = option(
        False,
        "old log-probs of a distilled retry are computed again, without the guidance",
        "unused where the loss of a retry has no importance ratio (R3L: paper; Critique-GRPO: audit 0.6)",
    )


class PivotSettings(RetrySettings):
    """Options of retries that start at a pivot, a turn of the first attempt: which one, what is replayed.

    ``pivot``: ``reflected`` (named by the reflection), ``start``, ``random`` or ``oracle`` (named by the
    environment's critic). ``replay``: ``whole`` (all actions before the pivot) or ``until_refused``.
    """

    pivot: PivotRule = option(
        "reflected",
        "where a retry starts (B-5 for start)",
        "paper: the reflection's pivot",
    )
    replay_duplicate_obs: bool = option(
        False, "show the pivot's observation twice (B-6)", "our choice (released code shows it twice)"
    )
    replay: ReplayRule = option(
        "whole",
        "actions of the base that are replayed: all before the pivot, or up to the first refused one (B-18)",
        "our choice: a refused action changes nothing when replayed (released code: until_refused)",
    )


@dataclass(frozen=True)
class Restart:
    """The start of a retry and its guidance.

    ``turn``: the first turn (from 0) that is sampled again. ``guidance``: text for its prompt, None for none.
    ``attempt``: tells several retries of one episode apart in seed addresses. ``repeat_observation``: show
    the observation of that turn twice, unless it is the first (audit B-6). ``counted``: include the retry in
    the ``retry/`` metrics. ``after_refused``: the environment refused the action of the turn before; it stays
    in the dialog but is not replayed, and counts as no turn (audit B-18).
    """

    turn: int
    guidance: str | None
    attempt: tuple[int, ...] = ()
    repeat_observation: bool = False
    counted: bool = True
    after_refused: bool = False


@dataclass(frozen=True)
class Retry:
    """A finished retry: as sampled with guidance, and the same responses under prompts without it.

    The second form (``distilled``) is for context distillation.
    """

    guided: Trajectory
    distilled: Trajectory


def choose_pivot(
    rule: PivotRule,
    reported: int,
    oracle: int | None,
    base: Trajectory,
    ctx: RolloutContext,
    attempt: tuple[int, ...] = (),
) -> int | None:
    """The turn (from 0) of ``base`` at which its retry starts, by ``rule``.

    ``reflected``: ``reported``, the reflection's pivot. ``start``: 0. ``random``: uniform over the turns,
    drawn by seed, in which ``attempt`` tells several retries apart (ValueError without turns). ``oracle``:
    ``oracle``, the turn that the environment's critic names; if that is None, so is the result, and
    ``dropped/no_oracle_pivot`` is counted.
    """
    if rule == "start":
        return 0
    if rule == "random":
        draws = generator(*ctx.address, "pivot", base.task.address, base.member, *attempt)
        return int(draws.integers(len(base.turns)))
    if rule == "reflected":
        return reported
    if oracle is None:
        ctx.counters["dropped/no_oracle_pivot"] += 1
    return oracle


def restart_at(
    pivot: int, guidance: str | None, base: Trajectory, settings: PivotSettings, attempt: tuple[int, ...] = ()
) -> Restart:
    """The start of a retry of ``base``: at turn ``pivot``, with ``guidance``.

    Under ``replay: until_refused`` it is earlier if the environment refused an action before the pivot: right
    after the first such action. ``attempt``: tells several retries apart in seed addresses.
    """
    refused = [k for k, turn in enumerate(base.turns[:pivot]) if turn.refused]
    if settings.replay == "until_refused" and refused:
        return Restart(refused[0] + 1, guidance, attempt, after_refused=True)
    return Restart(pivot, guidance, attempt, settings.replay_duplicate_obs)


def guidance_text(
    reflection: ParsedReflection, settings: ReflectionSettings, release: FeedbackPrompts | None = None
) -> str | None:
    """The text that guides a retry, by ``settings.guidance``: the reflection, its suggestion, or None.

    ``release``: prompts of the released code, whose words then frame the reflection. None also if only
    the suggestion is wanted and the reflection has none.
    """
    if settings.guidance == "none":
        return None
    if settings.guidance == "suggestion":
        return None if reflection.suggestion is None else hint(reflection.suggestion)
    if release:
        return release.guidance(reflection.document)
    ascii_only = settings.reflection_schema != "released"  # audit B-41
    report = json.dumps(reflection.document, indent=2, ensure_ascii=ascii_only)
    return template("guidance_full").substitute(report=report)


def hint(suggestion: str) -> str:
    """``suggestion`` as the text that guides a retry, without the rest of a reflection (``Hint: ...``)."""
    return template("guidance_compact").substitute(suggestion=suggestion)


def with_guidance(restart: Restart, place: GuidancePlace) -> Guide:
    """A function that inserts ``restart.guidance`` into the new messages of the turn where a retry begins.

    It returns them with and without guidance. ``place``: ``user_turn``: at the head of the user message.
    ``system_message``: at the end of the system prompt if that comes right before, else as a system message
    of its own before the observation (released code; some chat templates forbid it, audit B-33). If the turn
    has no new message (it continues a response), guidance is a separate message.
    """
    guidance = restart.guidance

    def guide(messages: list[Message]) -> Prompt:
        # The retry continues in the middle of a response (a turn is one line): no message to extend.
        if not messages:
            role = "user" if place == "user_turn" else "system"
            return Prompt([Message(role, guidance)] if guidance else [], [])

        *before, user = messages
        repeated = [user] if restart.repeat_observation and restart.turn > 0 else []
        unguided = [*before, *repeated, user]
        if guidance is None:
            return Prompt(unguided, unguided)
        if place == "user_turn":
            guided = replace(user, content=f"{guidance}\n{user.content}")
            return Prompt([*before, *repeated, guided], unguided)

        # As a system message: part of the system prompt at the start of the dialog, else a new message.
        if before and before[-1].role == "system":
            system = before[-1]
            guided = replace(system, content=f"{system.content}\n\n{guidance}")
            return Prompt([*before[:-1], guided, user], unguided)
        return Prompt([*before, *repeated, Message("system", guidance), user], unguided)

    return guide


async def retry(ctx: RolloutContext, base: Episode, restart: Restart, settings: RetrySettings) -> Retry:
    """Retry the finished rollout ``base`` from turn ``restart.turn``, with guidance in that turn's prompt.

    Plays in the base's environment, rewound to that turn; ``base.trajectory`` stays as it is, and its
    environment stays open for further retries. Counts the rollout and logs it in ``ctx`` (continue_episode),
    and counts under ``retry/`` and ``pivot/`` unless the environment failed, which sets ``guided.failed``.
    Raises ReplayMismatch if the restored observation is not the recorded one.
    """
    source = base.trajectory

    # Rewind the environment. The turns before the restart are the base's own; a refused one is not replayed.
    prefix = source.turns[: restart.turn]
    if restart.after_refused:
        prefix[-1] = replace(prefix[-1], action=None)
    now = ctx.seen(await base.env.rewind(restart.turn - restart.after_refused))

    # Play on in a fork of the dialog. A second fork gets the same responses under unguided prompts: its
    # prompt ids belong to the distilled trajectory.
    guided = Trajectory(
        source.task,
        source.member,
        TrajectoryKind.GUIDED_RETRY,
        prefix,
        restart_turn=restart.turn,
        attempt=restart.attempt,
    )
    conversation = base.conversation.fork(restart.turn)
    unguided = base.conversation.fork(restart.turn)
    episode = Episode(guided, base.env, conversation, base.first, unguided=unguided)
    guide = with_guidance(restart, settings.guidance_place)
    how = Continuation(Phase.RETRY, settings.retry_rules, restart.attempt, guide)
    await continue_episode(ctx, episode, now, how)
    episode.close_dialogs()
    guided.trainable = range(restart.turn, len(guided.turns))

    if restart.counted and not guided.failed:
        ctx.counters["retry/count"] += 1
        ctx.counters["retry/success"] += int(guided.success)
        ctx.counters["retry/improved"] += int(guided.reward > source.reward)
        ctx.counters["retry/worse"] += int(guided.reward < source.reward)
        ctx.add_fraction("retry/gain", guided.reward - source.reward)
        ctx.counters["retry/after_failure"] += int(not source.success)
        ctx.counters["retry/rescued"] += int(guided.success and not source.success)
        ctx.counters["pivot/turns"] += guided.restart_turn
        ctx.counters["pivot/base_turns"] += len(source.turns)

    # Context distillation: the same responses under the prompts without guidance. The guided prompts become
    # its teacher's context.
    played = guided.turns[restart.turn :]
    own_turns = []
    for turn in played:
        unguided_ids = turn.unguided_prompt_ids or ()
        taught_ids = turn.prompt_ids if turn.prompt_ids != unguided_ids else None
        own_turns.append(replace(turn, prompt_ids=unguided_ids, teacher_prompt_ids=taught_ids))
    distilled = replace(
        guided,
        kind=TrajectoryKind.DISTILLED,
        turns=[*guided.turns[: restart.turn], *own_turns],
        rescore=settings.rescore_distilled,
        hint=restart.guidance or "",
    )
    return Retry(guided, distilled)
