"""Playing an episode: the one loop that turns a task, an environment and a policy into a Trajectory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from r3l.core.environment import Dialogue, Message, Observation, Parsed, Transcript
from r3l.core.policy import Completion, Conversation, Policy, Sampling
from r3l.core.pool import EnvironmentHandle, EnvironmentPool
from r3l.core.seeds import Address
from r3l.core.task import Task
from r3l.core.trajectory import Trajectory, Turn

Decorate = Callable[[list[Message]], tuple[list[Message], list[Message]]]
Rules = Literal["same_as_base", "released_lenient"]


@dataclass
class RolloutContext:
    """Everything a method may use to explore: the policy, environments, text rules, and the budget meter.

    ``address`` prefixes every seed drawn here: (run seed, purpose, step). ``gather`` runs coroutines
    concurrently in the way the engine wants. ``counters`` collects the budget and everything dropped.
    ``feedback_sampling`` is for reflections and critiques. ``explored`` collects every trajectory that was played or
    written, in the order they were finished, for readers: a method's groups hold only what it learns from.
    """

    policy: Policy
    pool: EnvironmentPool
    dialogue: Dialogue
    sampling: Sampling
    feedback_sampling: Sampling
    address: Address
    gather: Callable[..., Coroutine[Any, Any, list[Any]]]
    counters: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    explored: list[Trajectory] = field(default_factory=list)

    async def complete(
        self, conversation: Conversation, sampling: Sampling, kind: str, *where: str | int
    ) -> Completion:
        """One response, metered under ``tokens/<kind>`` (generated) and ``prompt/<kind>`` (read for it)."""
        completion = await conversation.respond(sampling, (*self.address, kind, *where))
        self.counters[f"tokens/{kind}"] += len(completion.response_ids)
        self.counters["tokens/generated"] += len(completion.response_ids)
        self.counters[f"prompt/{kind}"] += len(completion.prompt_ids)
        return completion


@dataclass
class Episode:
    """A played trajectory with what is needed to restart it: environment, dialog, first and last observation.

    ``clean`` is the same dialog without guidance, where there is any; ``clean_prompts`` are its prompt tokens, turn
    by turn.
    """

    trajectory: Trajectory
    env: EnvironmentHandle
    conversation: Conversation
    first: Observation
    last: Observation | None = None
    clean: Conversation | None = None
    clean_prompts: list[tuple[int, ...]] = field(default_factory=list)

    def ended(self) -> Transcript:
        """The finished episode as a critic reads it."""
        turns, last = self.trajectory.turns, self.last
        seen = [turn.observation for turn in turns[1:]] + [last.text if last and turns[-1].error is None else ""]
        answers = [(turn.action or turn.response, text) for turn, text in zip(turns, seen, strict=True)]
        error = turns[-1].error
        return Transcript(self.trajectory.task, self.first.text, tuple(answers), self.trajectory.success, error)

    async def close(self) -> None:
        """Give back the environment and the policy's memory of the dialog."""
        self.conversation.close()
        await self.env.close()


async def play(ctx: RolloutContext, task: Task, member: int) -> Episode:
    """A base rollout of ``task`` from its start, without any guidance."""
    env = ctx.pool.open()
    first = await env.reset(task)
    episode = Episode(Trajectory(task, member, "base"), env, ctx.policy.open(), first)
    await continue_episode(ctx, episode, first, ctx.sampling, "rollout")
    return episode


async def play_group(ctx: RolloutContext, task: Task, size: int, first: int = 0) -> list[Trajectory]:
    """``size`` base rollouts of ``task``, members ``first`` and on: what methods without retries learn from."""
    members = range(first, first + size)
    episodes: list[Episode] = await ctx.gather(*[play(ctx, task, member) for member in members])
    for episode in episodes:
        await episode.close()
    return [episode.trajectory for episode in episodes]


async def continue_episode(
    ctx: RolloutContext,
    episode: Episode,
    now: Observation,
    sampling: Sampling,
    purpose: str,
    decorate: Decorate | None = None,
    rules: Rules = "same_as_base",
    attempt: tuple[int, ...] = (),
) -> None:
    """Play on from ``now`` until the episode ends; fills the episode's trajectory in place.

    ``decorate`` turns the messages of the first turn played here into (messages shown, messages without guidance).
    Ending rules: the engine says done; the response cannot be read or used, or the dialog outgrows the model's
    context (the reward is then the observation's ``invalid_action_reward``, 0 by default); ``max_turns``. Under
    ``released_lenient`` an unusable response costs a turn and is answered by its error instead (the original's
    retries in ALFWorld, audit B-7).
    """
    trajectory = episode.trajectory
    ctx.counters["rollouts"] += 1
    reason = None
    while reason is None:
        messages = clean = _next_messages(ctx.dialogue, episode, now)
        if decorate is not None:
            (messages, clean), decorate = decorate(messages), None
        completion = await _answer(ctx, episode, messages, clean, sampling, purpose, attempt)
        if completion.stop_reason == "context":
            reason = "context"
            break
        turn = _read(ctx.dialogue, trajectory, completion, now)
        trajectory.turns.append(turn)
        if turn.action is not None:
            now = await episode.env.step(turn.action)
            ctx.counters["env_steps"] += 1
        elif rules == "released_lenient":
            now = replace(now, text=f"Not possible ({turn.error}). {now.text}")
        else:
            reason = turn.error or "format"
            break
        reason = _engine_reason(now, len(trajectory.turns), ctx.dialogue.max_turns)
    episode.last = now
    _finish(ctx, trajectory, now, reason)


async def _answer(
    ctx: RolloutContext,
    episode: Episode,
    messages: list[Message],
    clean: list[Message],
    sampling: Sampling,
    purpose: str,
    attempt: tuple[int, ...],
) -> Completion:
    for message in messages:
        episode.conversation.add(message)
    trajectory = episode.trajectory
    where: Address = (trajectory.task.id, trajectory.member, *attempt, len(trajectory.turns))
    completion = await ctx.complete(episode.conversation, sampling, purpose, *where)
    if episode.clean is not None and completion.stop_reason != "context":
        for message in clean:
            episode.clean.add(message)
        episode.clean_prompts.append(episode.clean.adopt(completion))
    return completion


def _next_messages(dialogue: Dialogue, episode: Episode, now: Observation) -> list[Message]:
    trajectory = episode.trajectory
    if not trajectory.turns:
        return dialogue.opening(trajectory.task, episode.first)
    message = dialogue.following(episode.first, trajectory.actions, now)
    return [] if message is None else [message]


def _read(dialogue: Dialogue, trajectory: Trajectory, completion: Completion, now: Observation) -> Turn:
    parsed = dialogue.parse(completion.text, now, trajectory.actions)
    if completion.stop_reason == "length" and (parsed.error is not None or dialogue.stop == "line"):
        parsed = Parsed(None, "truncated")
    return Turn.of(completion, now.text, parsed.action, parsed.error)


def _engine_reason(now: Observation, turns: int, max_turns: int) -> str | None:
    if now.done:
        return "success" if now.success else "done"
    return "max_turns" if turns >= max_turns else None


def _finish(ctx: RolloutContext, trajectory: Trajectory, now: Observation, reason: str) -> None:
    ended_in_engine = reason in ("success", "done", "max_turns")
    trajectory.stop_reason = reason
    trajectory.reward = now.reward if ended_in_engine else now.invalid_action_reward
    trajectory.success = now.success and ended_in_engine
    error = None if ended_in_engine else reason
    trajectory.feedback = ctx.dialogue.closing(trajectory.reward, trajectory.success, len(trajectory.turns), error)
    ctx.counters[f"stop/{reason}"] += 1
    ctx.explored.append(trajectory)
