"""Playing an episode: the one loop that turns a task, an environment and a policy into a Trajectory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from r3l.core.environment import Dialogue, Message, Observation
from r3l.core.policy import Completion, Conversation, Policy, Sampling
from r3l.core.pool import EnvironmentPool, Handle
from r3l.core.seeds import Address
from r3l.core.task import Task
from r3l.core.trajectory import Trajectory, Turn

T = TypeVar("T")
Decorate = Callable[[list[Message]], list[Message]]


@dataclass
class Arena:
    """Everything a method may use to explore: the policy, environments, text rules, and the budget meter.

    ``address`` prefixes every seed drawn here: (run seed, purpose, step). ``gather`` runs coroutines
    concurrently in the way the engine wants. ``counters`` collects the budget and everything dropped.
    ``feedback_sampling`` is for reflections and critiques.
    """

    policy: Policy
    pool: EnvironmentPool
    dialogue: Dialogue
    sampling: Sampling
    feedback_sampling: Sampling
    address: Address
    gather: Callable[..., Coroutine[Any, Any, list[Any]]]
    counters: Counter[str] = field(default_factory=Counter)

    async def complete(
        self, conversation: Conversation, sampling: Sampling, kind: str, *where: str | int
    ) -> Completion:
        """One response, metered under ``tokens/<kind>``."""
        completion = await conversation.respond(sampling, (*self.address, kind, *where))
        self.counters[f"tokens/{kind}"] += len(completion.response_ids)
        self.counters["tokens/generated"] += len(completion.response_ids)
        return completion


@dataclass
class Episode:
    """A played trajectory with what is needed to restart it: its environment, dialog and first observation."""

    trajectory: Trajectory
    env: Handle
    conversation: Conversation
    first: Observation

    async def close(self) -> None:
        """Give back the environment and the policy's memory of the dialog."""
        self.conversation.close()
        await self.env.close()


async def play(arena: Arena, task: Task, member: int) -> Episode:
    """A base rollout of ``task`` from its start, without any guidance."""
    env = arena.pool.open()
    first = await env.reset(task)
    episode = Episode(Trajectory(task, member, "base"), env, arena.policy.open(), first)
    await continue_episode(arena, episode, first, arena.sampling, "rollout")
    return episode


async def continue_episode(
    arena: Arena,
    episode: Episode,
    now: Observation,
    sampling: Sampling,
    purpose: str,
    decorate: Decorate | None = None,
) -> None:
    """Play on from ``now`` until the episode ends; fills the episode's trajectory in place.

    ``decorate`` may change the messages of the first turn played here (guidance enters this way).
    Ending rules: the engine says done; the response cannot be read or used (reward 0); ``max_turns``;
    the dialog outgrows the model's context (reward 0).
    """
    trajectory = episode.trajectory
    arena.counters["rollouts"] += 1
    reason = None
    while reason is None:
        messages = _next_messages(arena.dialogue, episode, now)
        if decorate is not None:
            messages, decorate = decorate(messages), None
        for message in messages:
            episode.conversation.add(message)
        where = (trajectory.task.id, trajectory.member, len(trajectory.turns))
        completion = await arena.complete(episode.conversation, sampling, purpose, *where)
        if completion.stop_reason == "context":
            reason = "context"
            break
        turn = _read(arena.dialogue, trajectory, completion, now)
        trajectory.turns.append(turn)
        if turn.action is None:
            reason = turn.error or "format"
            break
        now = await episode.env.step(turn.action)
        arena.counters["env_steps"] += 1
        reason = _engine_reason(now, len(trajectory.turns), arena.dialogue.max_turns)
    _finish(arena, trajectory, now, reason)


def _next_messages(dialogue: Dialogue, episode: Episode, now: Observation) -> list[Message]:
    trajectory = episode.trajectory
    if not trajectory.turns:
        return dialogue.opening(trajectory.task, episode.first)
    return [dialogue.following(episode.first, trajectory.actions, now)]


def _read(dialogue: Dialogue, trajectory: Trajectory, completion: Completion, now: Observation) -> Turn:
    parsed = dialogue.parse(completion.text, now, trajectory.actions)
    error = parsed.error
    if error is not None and completion.stop_reason == "length":
        error = "truncated"
    return Turn.of(completion, now.text, parsed.action, error)


def _engine_reason(now: Observation, turns: int, max_turns: int) -> str | None:
    if now.done:
        return "success" if now.success else "done"
    return "max_turns" if turns >= max_turns else None


def _finish(arena: Arena, trajectory: Trajectory, now: Observation, reason: str) -> None:
    ended_by_rule = reason in ("success", "done", "max_turns")
    trajectory.stop_reason = reason
    trajectory.reward = now.reward if ended_by_rule else 0.0
    trajectory.success = now.success and ended_by_rule
    error = None if ended_by_rule else reason
    trajectory.feedback = arena.dialogue.closing(trajectory.reward, trajectory.success, len(trajectory.turns), error)
    arena.counters[f"stop/{reason}"] += 1
