"""Playing an episode: the one loop that turns a task, an environment and a policy into a Trajectory."""

from __future__ import annotations

import math
import warnings
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from typing import Any, Literal, Protocol, TypeVar

from r3l.core.environment import Dialogue, Observation, Parsed, StopReason, Transcript
from r3l.core.finite import check_finite
from r3l.core.policy import Completion, Conversation, FinishReason, Judge, Phase, Policy, Sampling
from r3l.core.seeds import Address
from r3l.core.task import Task
from r3l.core.text import Message
from r3l.core.trajectory import Trajectory, TrajectoryKind, Turn

Rules = Literal["same_as_base", "released_lenient"]
Item = TypeVar("Item")
T = TypeVar("T")
KINDS = tuple(TrajectoryKind)  # the order in which trajectories are kept


@dataclass(frozen=True)
class Prompt:
    """The messages before a response, and what they would be without guidance."""

    messages: list[Message]
    unguided: list[Message]


Guide = Callable[[list[Message]], Prompt]


class Gather(Protocol):
    """``play`` of every item at the same time; results in the order of ``items``. What an engine hands to methods."""

    def __call__(
        self, play: Callable[[Item], Coroutine[Any, Any, T]], items: Iterable[Item]
    ) -> Coroutine[Any, Any, list[T]]:
        """If one fails, the others are cancelled and its error is raised."""


class LiveEnvironment(Protocol):
    """One environment as a method sees it, wherever its engine runs (``r3l.processes.pool`` has workers for it)."""

    async def reset(self, task: Task) -> Observation: ...

    async def step(self, action: str) -> Observation: ...

    async def rewind(self, turn: int) -> Observation:
        """Restore the state after ``turn`` actions. Raises ReplayMismatch when it is not the recorded one."""
        ...

    async def close(self) -> None: ...


class Environments(Protocol):
    """The source of environments: a pool of worker processes, or engines in this process."""

    def open(self) -> LiveEnvironment: ...


@dataclass
class RolloutContext:
    """Everything a method may use to explore: the policy, environments, text rules, and the budget meter.

    ``address`` prefixes every seed drawn here: (run seed, purpose, step). ``gather`` plays items
    concurrently in the way the engine wants. ``counters`` collects the budget and everything dropped.
    ``feedback_sampling`` is for reflections and critiques. ``progress``: the share of training that is done, 0 in the
    first step and 1 in the last, for schedules. ``history``: the metrics of the steps before this one, for methods with
    ``needs_history``. ``judge`` writes feedback where that is a method's setting.
    ``trajectories`` collects all that was played or written, as it
    is finished, for readers: a method's groups hold only what it learns from.
    """

    policy: Policy
    pool: Environments
    dialogue: Dialogue
    sampling: Sampling
    feedback_sampling: Sampling
    address: Address
    gather: Gather
    progress: float = 0.0
    history: Sequence[Mapping[str, float]] = ()
    judge: Judge | None = None
    counters: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    trajectories: list[Trajectory] = field(default_factory=list)
    _summands: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def played(self) -> list[Trajectory]:
        """``trajectories`` in an order that is the same whichever was finished first."""
        return sorted(self.trajectories, key=lambda t: (t.task.address, KINDS.index(t.kind), t.member, t.attempt))

    def add_fraction(self, counter: str, value: float) -> None:
        """Add to a counter of fractions; its sum is rounded once, so it is the same in whatever order they come."""
        self._summands[counter].append(value)
        self.counters[counter] = math.fsum(self._summands[counter])

    async def complete(
        self, conversation: Conversation, sampling: Sampling, purpose: str, *where: str | int
    ) -> Completion:
        """One response, metered under ``tokens/<purpose>`` (generated) and ``prompt/<purpose>`` (read for it).

        Raises NonFiniteError for its log-probs, naming run seed, step, task, member and turn.
        """
        address = (*self.address, purpose, *where)
        completion = await conversation.respond(sampling, address)
        check_finite(f"log-prob of the response at address {'/'.join(map(str, address))}", completion.logprobs)
        self.counters[f"tokens/{purpose}"] += completion.tokens.response
        self.counters["tokens/generated"] += completion.tokens.response
        self.counters[f"prompt/{purpose}"] += completion.tokens.prompt
        return completion

    def seen(self, observation: Observation) -> Observation:
        observation, replaced = observation.well_formed()
        self.count_replaced(replaced)
        return observation

    def count_failure(self, task: Task, observation: Observation) -> None:
        """Note that an environment failed in an episode of ``task``, if it did."""
        if observation.failed:
            self.counters["env_failed"] += 1
            warnings.warn(f"task {task.id} ended in its environment's own error: {observation.failed}", stacklevel=2)

    def count_replaced(self, characters: int) -> None:
        if characters:
            self.counters["text/replaced"] += characters


@dataclass
class Episode:
    """A played trajectory with what is needed to restart it: environment, dialog, first and last observation.

    ``unguided`` is the same dialog without guidance, where there is any. ``prompts``: what was shown before each
    response that was asked for here.
    """

    trajectory: Trajectory
    env: LiveEnvironment
    conversation: Conversation
    first: Observation
    last: Observation | None = None
    unguided: Conversation | None = None
    prompts: list[list[Message]] = field(default_factory=list)

    def transcript(self) -> Transcript:
        turns, last = self.trajectory.turns, self.last
        error = turns[-1].error
        texts = [turn.observation for turn in turns[1:]] + [last.text if last and error is None else ""]
        answers = [(turn.action or turn.response, text) for turn, text in zip(turns, texts, strict=True)]
        return Transcript(self.trajectory.task, self.first.text, tuple(answers), self.trajectory.success, error)

    async def close(self) -> None:
        """Give back the environment and the policy's memory of the dialog."""
        self.close_dialogs()
        await self.env.close()

    def close_dialogs(self) -> None:
        """Give back the policy's memory of the dialog; the environment stays."""
        for conversation in (self.conversation, self.unguided):
            if conversation is not None:
                conversation.close()


@dataclass(frozen=True)
class Continuation:
    """How an episode is played on. ``attempt`` tells several retries of one member apart.

    ``phase`` is also the purpose in the address of its draws. ``guide`` makes the first prompt from its messages.
    Under ``released_lenient`` a retry ends as in the released code (audit B-7): an error that the dialogue tolerates
    costs a turn and is answered by its name alone. From the first one on actions are recorded no more: prompts show
    those before it, and nothing counts as a repetition.
    """

    phase: Phase = Phase.ROLLOUT
    rules: Rules = "same_as_base"
    attempt: tuple[int, ...] = ()
    guide: Guide | None = None


async def play(ctx: RolloutContext, task: Task, member: int) -> Episode:
    """A base rollout of ``task`` from its start, without any guidance."""
    env = ctx.pool.open()
    first = ctx.seen(await env.reset(task))
    episode = Episode(Trajectory(task, member, TrajectoryKind.BASE), env, ctx.policy.open(), first)
    await continue_episode(ctx, episode, first, Continuation())
    return episode


async def play_group(ctx: RolloutContext, task: Task, size: int, first: int = 0) -> list[Trajectory]:
    """``size`` base rollouts of ``task``, members ``first`` and on: what methods without retries learn from."""
    members = range(first, first + size)
    episodes = await ctx.gather(partial(play, ctx, task), members)
    for episode in episodes:
        await episode.close()
    return [episode.trajectory for episode in episodes]


async def continue_episode(ctx: RolloutContext, episode: Episode, now: Observation, how: Continuation) -> None:
    """Play on from ``now`` until the episode ends; fills the episode's trajectory in place.

    Ending rules: the engine says done; the response cannot be read or used, or the dialog outgrows the model's
    context (the reward is then the observation's ``invalid_action_reward``, 0 by default); ``max_turns``.
    """
    trajectory, guide = episode.trajectory, how.guide
    ctx.counters["rollouts"] += 1
    reason = None
    while reason is None:
        messages = _next_messages(ctx, episode, now)
        prompt = guide(messages) if guide else Prompt(messages, messages)
        guide = None  # only what is shown first
        completion = await _respond(ctx, episode, prompt, how)
        if completion.finish_reason is FinishReason.CONTEXT:
            reason = StopReason.CONTEXT
            break
        turn = _turn(ctx.dialogue, episode, completion, now, prompt)
        trajectory.turns.append(turn)
        if turn.action is not None:
            now = ctx.seen(await episode.env.step(turn.action))
            trajectory.turns[-1] = replace(turn, refused=now.refused)
            ctx.counters["env_steps"] += 1
            ctx.count_failure(trajectory.task, now)
        elif how.rules == "released_lenient" and turn.error in ctx.dialogue.retry_tolerates:
            now = replace(now, text=f"Not possible ({turn.error}).")
        else:
            reason = turn.error or StopReason.FORMAT
            break
        reason = _engine_reason(now, trajectory.played, ctx.dialogue.max_turns)
        if reason is StopReason.DONE and now.unread and ctx.dialogue.stop == "end":  # no answer is no wrong answer
            cut_off = completion.finish_reason is FinishReason.LENGTH
            reason = StopReason.TRUNCATED if cut_off else StopReason.FORMAT
    episode.last = now
    _finish(ctx, trajectory, now, reason)


def _next_messages(ctx: RolloutContext, episode: Episode, now: Observation) -> list[Message]:
    trajectory, dialogue = episode.trajectory, ctx.dialogue
    if not trajectory.turns:
        return dialogue.opening(trajectory.task, episode.first)
    if dialogue.history is not None:
        episode.conversation = episode.conversation.afresh()
        answers = [(Observation(t.observation, t.admissible), t.response, t.action or "") for t in trajectory.turns]
        return dialogue.fresh(trajectory.task, episode.first, answers, now)
    message = dialogue.following(episode.first, _recorded(trajectory), now)
    return [] if message is None else [message]


def _recorded(trajectory: Trajectory) -> list[str]:
    """The actions before the first tolerated error; all of them where there is none."""
    usable = takewhile(lambda turn: turn.error is None, trajectory.turns)
    return [turn.action for turn in usable if turn.action is not None]


async def _respond(ctx: RolloutContext, episode: Episode, prompt: Prompt, how: Continuation) -> Completion:
    for message in prompt.messages:
        episode.conversation.add(message)
    episode.prompts.append(prompt.messages)
    trajectory = episode.trajectory
    where: Address = (trajectory.task.address, trajectory.member, *how.attempt, len(trajectory.turns))
    sampling = replace(ctx.sampling, phase=how.phase)
    return await ctx.complete(episode.conversation, sampling, how.phase.value, *where)


def _turn(dialogue: Dialogue, episode: Episode, completion: Completion, now: Observation, prompt: Prompt) -> Turn:
    actions = _recorded(episode.trajectory)
    parsed = dialogue.parse(completion.text, now, actions if len(actions) == episode.trajectory.played else [])
    cut_off = completion.finish_reason is FinishReason.LENGTH and not dialogue.lenient
    if cut_off and (parsed.error is not None or dialogue.stop == "line"):
        parsed = Parsed(None, StopReason.TRUNCATED)
    turn = replace(Turn.of(completion, now.text, parsed.action, parsed.error), admissible=now.admissible)
    if episode.unguided is None:
        return turn
    for message in prompt.unguided:
        episode.unguided.add(message)
    return replace(turn, unguided_prompt_ids=episode.unguided.append_completion(completion))


def _engine_reason(now: Observation, turns: int, max_turns: int) -> StopReason | None:
    if now.done:
        return StopReason.SUCCESS if now.success else StopReason.DONE
    return StopReason.MAX_TURNS if turns >= max_turns else None


def _finish(ctx: RolloutContext, trajectory: Trajectory, now: Observation, reason: StopReason) -> None:
    trajectory.stop_reason = reason
    trajectory.reward = now.reward if reason.by_engine else now.invalid_action_reward
    check_finite(f"reward of task {trajectory.task.id}, member {trajectory.member}", trajectory.reward)
    trajectory.success = now.success and reason.by_engine
    error, turns = None if reason.by_engine else reason, trajectory.turns
    last = turns[-1].response if turns else ""
    trajectory.feedback = ctx.dialogue.closing(trajectory.reward, trajectory.success, len(turns), error, last)
    ctx.counters[f"stop/{reason}"] += 1
    ctx.trajectories.append(trajectory)
