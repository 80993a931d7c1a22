"""What a probe plays: attempts, reflections on the failed ones, and retries.

Every draw has an address, and the retries of one attempt share theirs: a guided and an unguided retry from the same
pivot are sampled from the same noise, so that their difference is the effect of the hint.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from r3l.algorithm import R3LSettings
from r3l.core.audits import Agreement, agreement
from r3l.core.environment import Critique, StopReason
from r3l.core.errors import ConfigError
from r3l.core.feedback import FeedbackSource, InvalidFeedback, ParsedReflection
from r3l.core.rollout import Episode, RolloutContext, play
from r3l.core.task import Task
from r3l.core.trajectory import Turn
from r3l.envs.base.experts import NO_CAUSE, first_action
from r3l.envs.base.tagged import TaggedDialogue
from r3l.processes.progress import progress
from r3l.reflection import reflect
from r3l.retry import guidance_text, restart_at, retry
from r3l.runs.session import PlaySession

INVALID = frozenset({StopReason.FORMAT, StopReason.INADMISSIBLE, StopReason.TRUNCATED})  # ends by an invalid response
CRITIC = (1,)  # the attempt in the address of the critic's reflection; the model's own is 0


@dataclass(frozen=True)
class Outcome:
    """Of a retry. ``improved``: its reward is higher than the attempt's.

    ``tokens``: generated for it, with those of the reflection that gave its pivot or hint.
    ``followed``: whether its first action was the hinted one; None where no possible action was hinted.
    ``invalid``: it ended by an invalid response.
    """

    success: bool
    improved: bool
    tokens: int
    followed: bool | None = None
    invalid: bool = False


@dataclass(frozen=True)
class OwnReflection:
    """The model's reflection on a failed attempt. ``invalid``: why it could not be used.

    ``agrees``: with the critic; None where one of them names no pivot. The retries start at the pivot, with its hint
    and without, and at the start with the hint; None where there is no pivot. ``fresh``: another attempt.
    """

    invalid: str | None = None
    agrees: Agreement | None = None
    guided: Outcome | None = None
    unguided: Outcome | None = None
    from_start: Outcome | None = None
    fresh: Outcome | None = None


@dataclass(frozen=True)
class CriticReflection:
    """The environment's critic on a failed attempt, and retries from its pivot with and without its hint.

    ``cause`` is None where it found no wrong action.
    """

    cause: str | None
    guided: Outcome
    unguided: Outcome


@dataclass(frozen=True)
class Attempt:
    """A base rollout. ``actions`` that could be read, and how many of them name only what was ``shown`` before;
    None where responses are answers, not actions.

    ``own`` and ``critic`` belong to failed attempts; ``critic`` is None where the critic has nothing to say.
    """

    task: str
    group: str
    member: int
    success: bool
    reward: float
    stop: StopReason
    turns: int
    tokens: int
    actions: int | None = None
    shown: int = 0
    own: OwnReflection | None = None
    critic: CriticReflection | None = None


@dataclass(frozen=True)
class Played:
    """Everything that was played. ``expert``: successes of the error-free expert by task; ``seconds`` by activity."""

    attempts: list[Attempt]
    expert: Mapping[str, bool] | None
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def halves(self) -> list[str]:
        """The task groups, the easier one first: their names sort that way."""
        return sorted({attempt.group for attempt in self.attempts})


def play_probe(session: PlaySession, settings: R3LSettings, tasks: Sequence[Task], attempts: int) -> Played:
    """``attempts`` attempts at each task, with what follows the failed ones; the error-free expert plays each once.

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
    return Played(played, _expert(session, tasks), seconds)


async def _attempt(ctx: RolloutContext, member: tuple[Task, int]) -> Episode:
    return await play(ctx, *member)


def _check_critic(ctx: RolloutContext, episodes: Sequence[Episode]) -> None:
    failed = [episode for episode in episodes if not episode.trajectory.success and episode.trajectory.turns]
    if failed and not any(ctx.dialogue.critique(episode.transcript()) for episode in failed):
        raise ConfigError(
            f"the environment has no critic for tasks such as {failed[0].trajectory.task.id}, and a probe compares "
            "reflections with a critic; give --task-set with tasks that have one"
        )


def _expert(session: PlaySession, tasks: Sequence[Task]) -> dict[str, bool] | None:
    """Which tasks the error-free expert solves; None where there is no expert."""
    try:
        demonstrations = session.package.careful(tasks, session.run.env_settings.max_turns)
    except ConfigError:
        return None
    return {demonstration.task.id: demonstration.success for demonstration in demonstrations}


async def study(ctx: RolloutContext, settings: R3LSettings, episode: Episode) -> Attempt:
    """An attempt with its reflections and retries; closes the episode."""
    trajectory = episode.trajectory
    assert trajectory.stop_reason is not None
    attempt = Attempt(
        task=trajectory.task.id,
        group=trajectory.task.group,
        member=trajectory.member,
        success=trajectory.success,
        reward=trajectory.reward,
        stop=trajectory.stop_reason,
        turns=len(trajectory.turns),
        tokens=_tokens(trajectory.turns),
    )
    if isinstance(ctx.dialogue, TaggedDialogue):
        copied = list(_copied(ctx.dialogue, episode))
        attempt = replace(attempt, actions=len(copied), shown=sum(copied))
    if not trajectory.success and trajectory.turns:
        critique = ctx.dialogue.critique(episode.transcript())
        retries = Retries(ctx, settings, episode)
        own, critic = await retries.of_model(critique), await retries.of_critic(critique)
        attempt = replace(attempt, own=own, critic=critic)
    await episode.close()
    return attempt


@dataclass
class Retries:
    """The retries of one failed attempt. Two that are the same (pivot and guidance) are played once."""

    ctx: RolloutContext
    settings: R3LSettings
    base: Episode
    _played: dict[tuple[int, str | None], Outcome] = field(default_factory=dict)

    async def of_model(self, critique: Critique | None) -> OwnReflection:
        """From the pivot that the model's own reflection names."""
        reflection = await reflect(self.ctx, self.base, self.settings)
        parsed = reflection.parsed
        if isinstance(parsed, InvalidFeedback):
            return OwnReflection(invalid=parsed.reason)
        assert isinstance(parsed, ParsedReflection)
        if parsed.pivot is None:
            return OwnReflection()
        written = _tokens(reflection.trajectory.turns[-1:])
        outcomes = [
            await self._retry(pivot, parsed if guided else None, written)
            for pivot, guided in ((parsed.pivot, True), (parsed.pivot, False), (0, True))
        ]
        return OwnReflection(None, agreement(critique, parsed), *outcomes)

    async def of_critic(self, critique: Critique | None) -> CriticReflection | None:
        """From the pivot that the environment's critic names."""
        if critique is None or critique.turn is None:
            return None
        by_critic = self.settings.model_copy(update={"feedback": FeedbackSource.ENVIRONMENT})
        parsed = (await reflect(self.ctx, self.base, by_critic, CRITIC)).parsed
        if not isinstance(parsed, ParsedReflection):
            return None
        cause = None if critique.cause == NO_CAUSE else critique.cause
        guided, unguided = [await self._retry(critique.turn, hint, 0) for hint in (parsed, None)]
        return CriticReflection(cause, guided, unguided)

    async def _retry(self, pivot: int, reflection: ParsedReflection | None, written: int) -> Outcome:
        """``written``: tokens of the reflection, which count as tokens of the retry."""
        guidance = None if reflection is None else guidance_text(reflection, self.settings, self.ctx.dialogue.release)
        if (pivot, guidance) not in self._played:
            self._played[pivot, guidance] = await self._play(pivot, guidance, reflection)
        outcome = self._played[pivot, guidance]
        return replace(outcome, tokens=outcome.tokens + written)

    async def _play(self, pivot: int, guidance: str | None, reflection: ParsedReflection | None) -> Outcome:
        base, dialogue = self.base.trajectory, self.ctx.dialogue
        hinted = None if reflection is None else await self._hinted(pivot, reflection)
        restart = restart_at(pivot, guidance, base, self.settings)
        guided = (await retry(self.ctx, self.base, restart, self.settings)).guided
        turns = guided.turns[pivot:]
        followed = None
        if hinted is not None and turns:
            assert isinstance(dialogue, TaggedDialogue)
            followed = dialogue.read(turns[0].response) == hinted
        return Outcome(
            guided.success, guided.reward > base.reward, _tokens(turns), followed, guided.stop_reason in INVALID
        )

    async def _hinted(self, pivot: int, reflection: ParsedReflection) -> str | None:
        """The action that a suggestion begins with, where it is possible at ``pivot``."""
        dialogue = self.ctx.dialogue
        if not isinstance(dialogue, TaggedDialogue) or reflection.suggestion is None:
            return None
        action, now = first_action(reflection.suggestion), await self.base.env.rewind(pivot)
        return action if dialogue.possible(action, now) else None


def _copied(dialogue: TaggedDialogue, episode: Episode) -> Iterator[bool]:
    """For each turn with an action, possible or not: whether it names only what was shown before."""
    shown = ""
    for turn, messages in zip(episode.trajectory.turns, episode.prompts, strict=False):
        shown += "\n".join(message.content.lower() for message in messages) + "\n"
        action = dialogue.read(turn.response)
        if action is not None:
            yield all(contains_words(shown, name) for name in dialogue.names(action))


def contains_words(text: str, name: str) -> bool:
    """Whether ``text``, in lower case, has ``name`` as whole words."""
    return re.search(rf"(?<!\w){re.escape(name.lower())}(?!\w)", text) is not None


def _tokens(turns: Sequence[Turn]) -> int:
    return sum(len(turn.response_ids) for turn in turns)
