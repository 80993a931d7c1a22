"""Playing what a regime card counts: attempts, reflections on the failed ones, and retries.

Every draw has an address, and the retries of one attempt share theirs: a guided retry and an unguided one from the same
pivot sample from the same noise, so that their difference is the hint's.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from r3l.algorithm import R3LSettings
from r3l.core.audits import agreement
from r3l.core.environment import Critique
from r3l.core.errors import ConfigError
from r3l.core.feedback import FeedbackSource, InvalidFeedback, ParsedReflection
from r3l.core.rollout import Episode, RolloutContext, play
from r3l.core.task import Task
from r3l.core.trajectory import Turn
from r3l.envs.base.experts import NO_CAUSE, first_action
from r3l.envs.base.tagged import TaggedDialogue
from r3l.probe.records import UNUSABLE, Attempt, CriticReflection, OwnReflection, Regime, Try
from r3l.processes.progress import progress
from r3l.reflection import reflect
from r3l.retry import guidance_text, restart_at, retry
from r3l.runs.session import PlaySession

CRITIC = (1,)  # the attempt of its reflection's address


def play_regime(session: PlaySession, settings: R3LSettings, tasks: Sequence[Task], attempts: int) -> Regime:
    """``attempts`` attempts at each task, and what follows the failed ones; the scripted expert plays each once.

    Raises ConfigError where the environment has no critic for the tasks.
    """
    played: list[Attempt] = []
    seconds: defaultdict[str, float] = defaultdict(float)
    members = [(task, k) for task in tasks for k in range(attempts)]
    with progress("playing", len(members)) as advance:
        for first in range(0, len(members), session.batch):
            batch = members[first : first + session.batch]
            ctx = session.rollout_context((session.run.seed, "regime"), session.run.sampling.temperature)
            began = time.perf_counter()
            episodes = session.concurrently(partial(_attempt, ctx), batch)
            seconds["attempts"] += time.perf_counter() - began
            _check_critic(ctx, episodes)
            began = time.perf_counter()
            played += session.concurrently(partial(study, ctx, settings), episodes)
            seconds["retries"] += time.perf_counter() - began
            advance(f"{sum(attempt.success for attempt in played)} solved", count=len(batch))
    return Regime(played, _expert(session, tasks), isinstance(session.dialogue, TaggedDialogue), seconds)


async def _attempt(ctx: RolloutContext, member: tuple[Task, int]) -> Episode:
    return await play(ctx, *member)


def _check_critic(ctx: RolloutContext, episodes: Sequence[Episode]) -> None:
    failed = [episode for episode in episodes if not episode.trajectory.success and episode.trajectory.turns]
    if failed and not any(ctx.dialogue.critique(episode.transcript()) for episode in failed):
        raise ConfigError(
            f"the environment has no critic for tasks such as {failed[0].trajectory.task.id}, and a regime card is "
            "about what a critic says of failures; give --task-set with tasks that it knows"
        )


def _expert(session: PlaySession, tasks: Sequence[Task]) -> dict[str, bool] | None:
    """Which tasks a scripted expert without errors solves; None where there is no expert."""
    try:
        demonstrations = session.package.careful(tasks, session.run.env_settings.max_turns)
    except ConfigError:
        return None
    return {demonstration.task.id: demonstration.success for demonstration in demonstrations}


async def study(ctx: RolloutContext, settings: R3LSettings, episode: Episode) -> Attempt:
    """An attempt with what came of it; closes it."""
    trajectory = episode.trajectory
    assert trajectory.stop_reason is not None
    copied = [shown for shown in _copied(ctx, episode) if shown is not None]
    attempt = Attempt(
        task=trajectory.task.id,
        group=trajectory.task.group,
        member=trajectory.member,
        success=trajectory.success,
        reward=trajectory.reward,
        stop=trajectory.stop_reason,
        turns=len(trajectory.turns),
        tokens=_tokens(trajectory.turns),
        actions=len(copied),
        shown=sum(copied),
    )
    if not trajectory.success and trajectory.turns:
        critique = ctx.dialogue.critique(episode.transcript())
        retries = Retries(ctx, settings, episode)
        own, critic = await retries.of_model(critique), await retries.of_critic(critique)
        attempt = replace(attempt, own=own, critic=critic)
    await episode.close()
    return attempt


@dataclass
class Retries:
    """The retries of one failed attempt; the same one is played once."""

    ctx: RolloutContext
    settings: R3LSettings
    base: Episode
    _played: dict[tuple[int, str | None], Try] = field(default_factory=dict)

    async def of_model(self, critique: Critique | None) -> OwnReflection:
        """From the pivot of the model's own reflection."""
        reflection = await reflect(self.ctx, self.base, self.settings)
        parsed = reflection.parsed
        if isinstance(parsed, InvalidFeedback):
            return OwnReflection(invalid=parsed.reason)
        assert isinstance(parsed, ParsedReflection)
        if parsed.pivot is None:
            return OwnReflection()
        written = _tokens(reflection.trajectory.turns[-1:])
        tries = [
            await self._retry(pivot, parsed if guided else None, written)
            for pivot, guided in ((parsed.pivot, True), (parsed.pivot, False), (0, True))
        ]
        return OwnReflection(None, agreement(critique, parsed), *tries)

    async def of_critic(self, critique: Critique | None) -> CriticReflection | None:
        """From the pivot of the environment's critic."""
        if critique is None or critique.turn is None:
            return None
        by_critic = self.settings.model_copy(update={"feedback": FeedbackSource.ENVIRONMENT})
        parsed = (await reflect(self.ctx, self.base, by_critic, CRITIC)).parsed
        if not isinstance(parsed, ParsedReflection):
            return None
        cause = None if critique.cause == NO_CAUSE else critique.cause
        guided, unguided = [await self._retry(critique.turn, hint, 0) for hint in (parsed, None)]
        return CriticReflection(cause, guided, unguided)

    async def _retry(self, pivot: int, reflection: ParsedReflection | None, written: int) -> Try:
        """``written``: tokens of the reflection."""
        guidance = None if reflection is None else guidance_text(reflection, self.settings, self.ctx.dialogue.release)
        if (pivot, guidance) not in self._played:
            self._played[pivot, guidance] = await self._play(pivot, guidance, reflection)
        played = self._played[pivot, guidance]
        return replace(played, tokens=played.tokens + written)

    async def _play(self, pivot: int, guidance: str | None, reflection: ParsedReflection | None) -> Try:
        base = self.base.trajectory
        hinted = None if reflection is None else await self._hinted(pivot, reflection)
        guided = (
            await retry(self.ctx, self.base, restart_at(pivot, guidance, base, self.settings), self.settings)
        ).guided
        turns = guided.turns[pivot:]
        followed = None if hinted is None or not turns else _action(self.ctx, turns[0]) == hinted
        unusable = guided.stop_reason in UNUSABLE
        return Try(guided.success, guided.reward > base.reward, _tokens(turns), followed, unusable)

    async def _hinted(self, pivot: int, reflection: ParsedReflection) -> str | None:
        """The action that a suggestion begins with, where it is possible at ``pivot``."""
        dialogue = self.ctx.dialogue
        if not isinstance(dialogue, TaggedDialogue) or reflection.suggestion is None:
            return None
        action, now = first_action(reflection.suggestion), await self.base.env.rewind(pivot)
        return action if dialogue.possible(action, now) else None


def _copied(ctx: RolloutContext, episode: Episode) -> Iterator[bool | None]:
    """Of each turn whether its action names only what was shown before; None where nothing can be read."""
    if not isinstance(ctx.dialogue, TaggedDialogue):
        return
    shown = ""
    for turn, messages in zip(episode.trajectory.turns, episode.prompts, strict=False):
        shown += "\n".join(message.content.lower() for message in messages) + "\n"
        action = _action(ctx, turn)
        yield None if action is None else all(stands_in(name, shown) for name in ctx.dialogue.names(action))


def stands_in(name: str, text: str) -> bool:
    """Whether ``text``, in lower case, has ``name`` as whole words."""
    return re.search(rf"(?<!\w){re.escape(name.lower())}(?!\w)", text) is not None


def _action(ctx: RolloutContext, turn: Turn) -> str | None:
    """The action that a response holds, possible or not."""
    return ctx.dialogue.read(turn.response) if isinstance(ctx.dialogue, TaggedDialogue) else None


def _tokens(turns: Sequence[Turn]) -> int:
    return sum(len(turn.response_ids) for turn in turns)
