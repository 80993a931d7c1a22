"""The dialog in which feedback on a finished episode is written, whoever writes it: policy, environment or judge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from r3l.core.errors import ConfigError
from r3l.core.policy import Completion, Conversation, FinishReason, JudgePrompts
from r3l.core.rollout import Episode, RolloutContext
from r3l.core.seeds import Address
from r3l.core.text import Message
from r3l.core.trajectory import Feedback, Trajectory, TrajectoryKind, Turn
from r3l.feedback.feedback import FeedbackSource

# In the names of metrics.
WRITERS = {FeedbackSource.SELF: "model", FeedbackSource.ENVIRONMENT: "environment", FeedbackSource.JUDGE: "judge"}


@dataclass(frozen=True)
class FeedbackRequest:
    """What is asked of a writer. ``messages``: in the style of the run's prompts, to go on with the policy's dialog.

    ``instructions``: whole, around a log of the episode. ``by_environment``: what the environment's own critic writes,
    None where it has nothing to say.
    """

    messages: list[Message]
    instructions: Callable[[], list[Message]]
    by_environment: Callable[[], str | None]


@dataclass(frozen=True)
class Written:
    """A text as it stands in the policy's dialog, and who wrote it."""

    completion: Completion
    author: FeedbackSource


@dataclass(frozen=True)
class FeedbackDialog:
    """The dialog of one reflection or critique, and the ``turns`` that already stand in it.

    ``compact`` prompts continue the episode's own dialog (nothing is encoded twice); others open a
    new dialog around a numbered log, as the original does. ``attempt`` tells several reflections on one
    episode apart.
    """

    episode: Episode
    kind: TrajectoryKind
    conversation: Conversation
    turns: list[Turn]
    attempt: tuple[int, ...] = ()

    @classmethod
    def on(
        cls, ctx: RolloutContext, episode: Episode, kind: TrajectoryKind, attempt: tuple[int, ...] = ()
    ) -> FeedbackDialog:
        """That on a finished episode, before anything is asked."""
        turns = episode.trajectory.turns
        if ctx.dialogue.style == "compact":
            return cls(episode, kind, episode.conversation.fork(len(turns)), list(turns), attempt)
        return cls(episode, kind, ctx.policy.open(), [], attempt)

    async def write(self, ctx: RolloutContext, source: FeedbackSource, request: FeedbackRequest) -> Written:
        """What ``source`` writes after ``request``; counted by who wrote.

        Where the environment's critic has nothing to say, the policy writes. A teacher's text is appended to the
        policy's dialog, so that it can be imitated.
        """
        for message in request.messages:
            self.conversation.add(message)
        given = request.by_environment() if source is FeedbackSource.ENVIRONMENT else None
        if given is not None:
            written = Written(self.conversation.append_text(given), source)
        elif source is FeedbackSource.JUDGE:
            written = Written(await self._ask_judge(ctx, request), source)
        else:
            where, sampling = self._where(), ctx.feedback_sampling
            completion = await ctx.complete(self.conversation, sampling, self.kind.value, *where)
            written = Written(completion, FeedbackSource.SELF)
        ctx.counters[f"{self.kind}/by_{WRITERS[written.author]}"] += 1
        return written

    def close(self, ctx: RolloutContext, completion: Completion, parsed: Feedback) -> Trajectory:
        """The trajectory that teaches to write ``completion`` (only that turn is trained), noted in ``ctx``."""
        self.conversation.close()
        base, start = self.episode.trajectory, len(self.turns)
        sample = Trajectory(
            base.task,
            base.member,
            self.kind,
            [*self.turns, Turn.of(completion, base.feedback)],
            restart_turn=start,
            trainable=range(start, start + 1),
            attempt=self.attempt,
            parsed=parsed,
        )
        ctx.trajectories.append(sample)
        return sample

    def _where(self) -> Address:
        base = self.episode.trajectory
        return (base.task.address, base.member, *self.attempt)

    async def _ask_judge(self, ctx: RolloutContext, request: FeedbackRequest) -> Completion:
        """The judge's text in the policy's dialog; one longer than the policy may write is cut off (``length``)."""
        if ctx.judge is None:
            raise ConfigError("feedback is 'judge', but nobody has connected to one (docs/methods.md)")
        compact = ctx.judge.prompts is JudgePrompts.AS_POLICY
        messages = self._shown(ctx, request) if compact else request.instructions()
        answer = await ctx.judge.write(messages, (*ctx.address, self.kind.value, "judge", *self._where()))
        ctx.counters["tokens/judge"] += answer.tokens.response
        ctx.counters["prompt/judge"] += answer.tokens.prompt
        completion = self.conversation.append_text(answer.text)
        if completion.tokens.response > ctx.feedback_sampling.max_tokens:
            return replace(completion, finish_reason=FinishReason.LENGTH)
        return replace(completion, finish_reason=answer.finish_reason)

    def _shown(self, ctx: RolloutContext, request: FeedbackRequest) -> list[Message]:
        """What the policy would read: in the compact style the episode's own messages and responses first."""
        if ctx.dialogue.style != "compact":
            return request.messages
        turns = zip(self.episode.prompts, self.turns, strict=False)  # a prompt that found no room has no response
        played = [message for prompt, turn in turns for message in (*prompt, Message("assistant", turn.response))]
        return [*played, *request.messages]
