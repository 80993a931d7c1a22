"""Playing an episode: the loop that turns a task, an environment and a policy into a Trajectory."""

from __future__ import annotations

import math
import warnings
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
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
KINDS = tuple(TrajectoryKind)  # the order in which trajectories are logged


@dataclass(frozen=True)
class Prompt:
    """The new messages before a response.

    ``unguided``: the same messages without the guidance that a retry reads (the text of a reflection).
    """

    messages: list[Message]
    unguided: list[Message]


Guide = Callable[[list[Message]], Prompt]  # inserts guidance into the first prompt of a retry


class Gather(Protocol):
    """Runs ``play`` for every item concurrently and returns the results in order.

    The engine supplies it, so that it can sample the responses of all items in common batches.
    """

    def __call__(
        self, play: Callable[[Item], Coroutine[Any, Any, T]], items: Iterable[Item]
    ) -> Coroutine[Any, Any, list[T]]:
        """The results in the order of ``items``; the first error cancels the others and is raised."""


class LiveEnvironment(Protocol):
    """An asynchronous handle of one environment, whose engine may run in a worker (r3l.processes.pool)."""

    async def reset(self, task: Task) -> Observation:
        """Start an episode of ``task``; returns its first observation."""
        ...

    async def step(self, action: str) -> Observation:
        """Take one action; returns the observation after it."""
        ...

    async def rewind(self, turn: int) -> Observation:
        """Restore the state after the first ``turn`` actions of the episode, and return its observation.

        Raises ReplayMismatch if that observation differs from the one seen then.
        """
        ...

    async def close(self) -> None:
        """Release the engine; the handle is not used again."""
        ...


class Environments(Protocol):
    """A source of environments: a pool of worker processes, or engines in this process."""

    def open(self) -> LiveEnvironment:
        """A handle on a new environment, which has no task until its ``reset``."""
        ...


@dataclass
class RolloutContext:
    """Everything that a method may use to explore in one step: policy, environments, prompts, metrics.

    - ``pool``: opens environments. ``dialogue``: the environment's prompts and its parser of responses.
    - ``sampling``: parameters for responses in episodes; ``feedback_sampling``: for reflections and
      critiques.
    - ``address``: beginning of the seed address of every draw here, (run seed, purpose, step).
    - ``gather``: plays items concurrently.
    - ``progress``: share of training done, 0 in the first step and 1 in the last, for schedules.
    - ``history``: metrics of earlier steps, for methods with ``needs_history``.
    - ``tasks``: the task set that is played; the ablation with a corrupted critic takes another task from it.
    - ``judge``: the model that writes feedback under ``feedback: judge``.
    - ``counters``: metrics of the step: its budget, and everything dropped, by reason.
    - ``trajectories``: everything played or written, in order of completion, for logs. The groups of a method
      hold only what it learns from.
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
    tasks: Sequence[Task] = ()
    judge: Judge | None = None
    counters: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    trajectories: list[Trajectory] = field(default_factory=list)
    _summands: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def played(self) -> list[Trajectory]:
        """A copy of ``trajectories`` sorted by task, kind, member and attempt, not by which ended first."""

        def order(t: Trajectory) -> tuple[str, int, int, tuple[int, ...]]:
            return t.task.address, KINDS.index(t.kind), t.member, t.attempt

        return sorted(self.trajectories, key=order)

    def add_fraction(self, counter: str, value: float) -> None:
        """Add ``value`` to ``counters[counter]``; the sum does not depend on the order of the additions.

        The counter must be changed by this method only: each call sets it to the sum of all values so far.
        """
        # Episodes end in any order, so all values are kept and summed exactly each time.
        self._summands[counter].append(value)
        self.counters[counter] = math.fsum(self._summands[counter])

    async def complete(
        self, conversation: Conversation, sampling: Sampling, purpose: str, *where: str | int
    ) -> Completion:
        """Sample the next response of ``conversation`` and count its tokens.

        ``purpose`` and ``where`` (task, member and turn) complete the seed address of its draws. Its sampled
        tokens are added to ``tokens/<purpose>`` and ``tokens/generated``, the prompt tokens read for it to
        ``prompt/<purpose>``. If the dialog no longer fits the model, the response is empty, with
        ``FinishReason.CONTEXT``. Raises NonFiniteError, which names the address, if a log-prob is not finite.
        """
        address = (*self.address, purpose, *where)
        completion = await conversation.respond(sampling, address)
        name = "/".join(map(str, address))
        check_finite(f"log-prob of the response at address {name}", completion.logprobs)
        self.counters[f"tokens/{purpose}"] += completion.tokens.response
        self.counters["tokens/generated"] += completion.tokens.response
        self.counters[f"prompt/{purpose}"] += completion.tokens.prompt
        return completion

    def seen(self, observation: Observation) -> Observation:
        """``observation`` with U+FFFD for lone surrogates, counted in ``counters["text/replaced"]``.

        Replaced in its text and in its admissible actions; the observation itself if it has none.
        """
        observation, replaced = observation.well_formed()
        self.count_replaced(replaced)
        return observation

    def count_replaced(self, characters: int) -> None:
        """Add the number of replaced ``characters`` to ``counters["text/replaced"]``; 0 makes no entry."""
        if characters:
            self.counters["text/replaced"] += characters


@dataclass
class Episode:
    """A trajectory with what is needed to restart it: environment, dialog, first and last observation.

    ``last``: None until the episode has ended. ``unguided``: for a retry, a second dialog with the same
    responses but without guidance. ``prompts``: the messages before each response that was sampled in this
    episode; one more than responses if the last prompt did not fit the context.
    """

    trajectory: Trajectory
    env: LiveEnvironment
    conversation: Conversation
    first: Observation
    last: Observation | None = None
    unguided: Conversation | None = None
    prompts: list[list[Message]] = field(default_factory=list)

    def transcript(self) -> Transcript:
        """The finished episode in the form that its environment's critic reads.

        It needs at least one turn (else IndexError). After an invalid last response the observation is "".
        """
        turns = self.trajectory.turns
        error = turns[-1].error
        last = self.last.text if self.last and error is None else ""
        after = [*(turn.observation for turn in turns[1:]), last]  # the observation after each turn
        answers = tuple((turn.action or turn.response, text) for turn, text in zip(turns, after, strict=True))
        return Transcript(
            task=self.trajectory.task,
            first=self.first.text,
            answers=answers,
            success=self.trajectory.success,
            error=error,
        )

    async def close(self) -> None:
        """Release the environment and the policy's memory of the dialog (its KV cache)."""
        self.close_dialogs()
        await self.env.close()

    def close_dialogs(self) -> None:
        """Release the policy's memory of the dialog; the environment stays open."""
        for conversation in (self.conversation, self.unguided):
            if conversation is not None:
                conversation.close()


@dataclass(frozen=True)
class Continuation:
    """How to continue an episode: as a rollout or as a retry, by which rules and with which guidance.

    ``phase`` and ``attempt`` are part of the seed address of the episode's draws; several retries of one
    rollout differ in ``attempt``. ``guide`` inserts guidance into the first prompt; None: no guidance.
    ``rules`` say what an invalid response does:

    - ``same_as_base``: it ends the episode, as in a rollout.
    - ``released_lenient``, the rules of the released code (audit B-7): an error in
      ``Dialogue.retry_tolerates`` only costs a turn. The policy then sees ``Dialogue.tolerated`` as its next
      observation. Later prompts list only the actions before the first tolerated error, and no action after
      it counts as a repetition.
    """

    phase: Phase = Phase.ROLLOUT
    rules: Rules = "same_as_base"
    attempt: tuple[int, ...] = ()
    guide: Guide | None = None


async def play(ctx: RolloutContext, task: Task, member: int) -> Episode:
    """Play a base rollout of ``task``: from the start, without guidance, until it ends.

    ``member``: index of the rollout within its task, part of its seed address. The caller closes the
    returned episode. It is counted and logged in ``ctx``, and raises what :func:`continue_episode` raises.
    """
    env = ctx.pool.open()
    first = ctx.seen(await env.reset(task))
    episode = Episode(Trajectory(task, member, TrajectoryKind.BASE), env, ctx.policy.open(), first)
    await continue_episode(ctx, episode, first, Continuation())
    return episode


async def play_group(ctx: RolloutContext, task: Task, size: int, first: int = 0) -> list[Trajectory]:
    """Play ``size`` rollouts of ``task`` concurrently, each as :func:`play` does; closes what they opened.

    They are members ``first``, ``first`` + 1, ...; returns their trajectories in this order.
    """
    members = range(first, first + size)
    episodes = await ctx.gather(partial(play, ctx, task), members)
    for episode in episodes:
        await episode.close()
    return [episode.trajectory for episode in episodes]


async def continue_episode(
    ctx: RolloutContext,
    episode: Episode,
    now: Observation,
    how: Continuation,
) -> None:
    """Play on from observation ``now`` until the episode ends; extends the episode's trajectory in place.

    An episode ends when the engine says so or fails, after ``max_turns``, when a response cannot be parsed or
    used, or when the context is full. In the last two cases the reward is ``invalid_action_reward`` (default
    0) of the last observation. ``how``: as a rollout or as a retry, with which guidance; by its rules
    ``released_lenient`` some unusable responses only cost a turn. Counts the rollout, its actions and its
    stop reason in ``ctx.counters``, and adds the trajectory to ``ctx.trajectories``. Warns if the environment
    fails; raises NonFiniteError if the reward or a log-prob is not finite.
    """
    trajectory = episode.trajectory
    dialogue = ctx.dialogue
    guide = how.guide
    ctx.counters["rollouts"] += 1
    reason: StopReason | None = None
    while reason is None:
        # Show the observation. Guidance is part of the first prompt only.
        messages = _next_messages(ctx, episode, now)
        prompt = guide(messages) if guide else Prompt(messages, messages)
        guide = None
        for message in prompt.messages:
            episode.conversation.add(message)
        episode.prompts.append(prompt.messages)

        # Sample a response and read an action in it. Its draws are seeded by task, member, retry and turn.
        where: Address = (trajectory.task.address, trajectory.member, *how.attempt, len(trajectory.turns))
        sampling = replace(ctx.sampling, phase=how.phase)
        completion = await ctx.complete(episode.conversation, sampling, how.phase.value, *where)
        if completion.finish_reason is FinishReason.CONTEXT:
            reason = StopReason.CONTEXT
            break
        turn = _turn_of(dialogue, episode, completion, now, prompt)
        trajectory.turns.append(turn)

        # Act, or end the episode at an invalid response.
        if turn.action is not None:
            now = ctx.seen(await episode.env.step(turn.action))
            trajectory.turns[-1] = replace(turn, refused=now.refused)
            ctx.counters["env_steps"] += 1
        elif how.rules == "released_lenient" and turn.error in dialogue.retry_tolerates:
            now = replace(now, text=dialogue.tolerated(turn.error, turn.response))
        else:
            reason = turn.error or StopReason.FORMAT
            break

        # The engine, or the limit of turns, may end it.
        if now.failed:
            trajectory.failed = now.failed
            ctx.counters["env_failed"] += 1
            text = f"task {trajectory.task.id} ended in its environment's own error: {now.failed}"
            warnings.warn(text, stacklevel=2)
            reason = StopReason.ENV_FAILED
        elif now.done:
            reason = StopReason.SUCCESS if now.success else StopReason.DONE
        elif trajectory.played >= dialogue.max_turns:
            reason = StopReason.MAX_TURNS
        # A response without an answer is an invalid one, not a wrong answer.
        if reason is StopReason.DONE and now.no_answer and dialogue.stop == "end":
            cut_off = completion.finish_reason is FinishReason.LENGTH
            reason = StopReason.TRUNCATED if cut_off else StopReason.FORMAT
    episode.last = now
    _finish(ctx, trajectory, now, reason)


def _next_messages(ctx: RolloutContext, episode: Episode, now: Observation) -> list[Message]:
    """The messages that show ``now``: the opening, a fresh prompt (``history``), or one more message."""
    trajectory = episode.trajectory
    dialogue = ctx.dialogue
    if not trajectory.turns:
        return dialogue.opening(trajectory.task, episode.first)
    if dialogue.history is not None:
        episode.conversation = episode.conversation.restarted()
        answers = []
        for turn in trajectory.turns:
            shown = Observation(turn.observation, turn.admissible)
            answers.append((shown, turn.response, turn.action or ""))
        return dialogue.fresh(trajectory.task, episode.first, answers, now)
    recorded = _recorded(trajectory)
    now = replace(now, unrecorded=trajectory.played - len(recorded))
    message = dialogue.following(episode.first, recorded, now)
    return [] if message is None else [message]


def _recorded(trajectory: Trajectory) -> list[str]:
    """The actions of a trajectory, only up to the first tolerated error if there is one (Continuation)."""
    actions = []
    for turn in trajectory.turns:
        if turn.error is not None:
            break
        if turn.action is not None:
            actions.append(turn.action)
    return actions


def _turn_of(
    dialogue: Dialogue,
    episode: Episode,
    completion: Completion,
    now: Observation,
    prompt: Prompt,
) -> Turn:
    """Parse the response to ``now`` into a turn, and append it to the unguided dialog of a retry."""
    # After a tolerated error the released code records no actions, so none counts as repeated (audit B-7).
    actions = _recorded(episode.trajectory)
    if len(actions) != episode.trajectory.played:
        actions = []
    parsed = dialogue.parse(completion.text, now, actions)

    # A cut-off response is invalid unless an action could be read before the cut.
    cut_off = completion.finish_reason is FinishReason.LENGTH and not dialogue.lenient
    if cut_off and (parsed.error is not None or dialogue.stop == "line"):
        parsed = Parsed(None, StopReason.TRUNCATED)

    turn = replace(Turn.of(completion, now.text, parsed.action, parsed.error), admissible=now.admissible)
    if episode.unguided is None:
        return turn
    for message in prompt.unguided:
        episode.unguided.add(message)
    return replace(turn, unguided_prompt_ids=episode.unguided.append_completion(completion))


def _finish(ctx: RolloutContext, trajectory: Trajectory, now: Observation, reason: StopReason) -> None:
    """Record how the episode ended: stop reason, reward, success and the closing feedback."""
    # Where a response ended the episode, the engine's reward does not count.
    trajectory.stop_reason = reason
    trajectory.reward = now.reward if reason.by_engine else now.invalid_action_reward
    check_finite(f"reward of task {trajectory.task.id}, member {trajectory.member}", trajectory.reward)
    trajectory.success = now.success and reason.by_engine
    error = None if reason.by_engine else reason
    turns = trajectory.turns
    last = turns[-1].response if turns else ""
    trajectory.feedback = ctx.dialogue.closing(trajectory.reward, trajectory.success, len(turns), error, last)
    ctx.counters[f"stop/{reason}"] += 1
    ctx.trajectories.append(trajectory)
