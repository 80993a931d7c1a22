"""The dialog in which the policy, the environment's critic or a judge writes feedback on an episode."""

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

# Writers in the names of metrics.
WRITERS = {
    FeedbackSource.SELF: "model",
    FeedbackSource.ENVIRONMENT: "environment",
    FeedbackSource.JUDGE: "judge",
}


@dataclass(frozen=True)
class FeedbackRequest:
    """A request for feedback, in the form that each writer needs.

    - ``messages``: for the policy, in the style of the run's prompts; they continue its dialog.
    - ``instructions``: complete instructions around a log of the episode, for a judge.
    - ``by_environment``: returns the feedback of the environment's own critic; None if it has no comment.
    """

    messages: list[Message]
    instructions: Callable[[], list[Message]]
    by_environment: Callable[[], str | None]


@dataclass(frozen=True)
class Written:
    """Feedback as a response in the policy's dialog, and its author."""

    completion: Completion
    author: FeedbackSource


@dataclass(frozen=True)
class FeedbackDialog:
    """The dialog of one reflection or critique; ``turns``: the turns of the episode that it continues.

    If the run's prompts are ``compact`` it continues the episode's own dialog, so nothing is encoded twice.
    Other styles open a new dialog around a numbered log, as the released code does; ``turns`` is then empty.
    ``attempt`` tells several reflections on one episode apart in seed addresses. ``kind``: ``reflection`` or
    ``critique``.
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
        """Open a dialog in which a finished episode can be reflected on or criticised (``kind``)."""
        turns = episode.trajectory.turns
        if ctx.dialogue.style == "compact":
            return cls(episode, kind, episode.conversation.fork(len(turns)), list(turns), attempt)
        return cls(episode, kind, ctx.policy.open(), [], attempt)

    async def write(self, ctx: RolloutContext, source: FeedbackSource, request: FeedbackRequest) -> Written:
        """Append the request to the dialog and have ``source`` write the feedback.

        The policy writes it if the environment's critic has no comment. Text of another author is appended to
        the policy's dialog as its response, so that the policy can imitate it. The author is counted in
        ``ctx.counters`` (``reflection/by_...`` or ``critique/by_...``). Raises ConfigError for a judge if
        none is connected.
        """
        for message in request.messages:
            self.conversation.add(message)
        given = request.by_environment() if source is FeedbackSource.ENVIRONMENT else None
        if given is not None:
            written = Written(self.conversation.append_text(given), source)
        elif source is FeedbackSource.JUDGE:
            written = Written(await self._ask_judge(ctx, request), source)
        else:
            sampling = ctx.feedback_sampling
            completion = await ctx.complete(self.conversation, sampling, self.kind.value, *self._where())
            written = Written(completion, FeedbackSource.SELF)
        ctx.counters[f"{self.kind}/by_{WRITERS[written.author]}"] += 1
        return written

    def close(self, ctx: RolloutContext, completion: Completion, parsed: Feedback) -> Trajectory:
        """End the dialog; returns the trajectory that trains the policy to write ``completion``.

        ``completion`` is its last turn, the only one with gradient. ``parsed``: the content of the feedback,
        for logs. The trajectory is appended to ``ctx.trajectories``.
        """
        self.conversation.close()
        base = self.episode.trajectory
        start = len(self.turns)
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
        """Task, member and attempt, as the end of an address."""
        base = self.episode.trajectory
        return (base.task.address, base.member, *self.attempt)

    async def _ask_judge(self, ctx: RolloutContext, request: FeedbackRequest) -> Completion:
        """Have the judge write, as a response in the policy's dialog.

        Text longer than the policy's ``feedback_max_tokens`` counts as cut off (``length``).
        """
        if ctx.judge is None:
            raise ConfigError("feedback is 'judge', but no judge is connected (docs/methods.md)")

        # The prompt is the judge's own instructions, or all messages that the policy would read: a compact
        # request continues the episode's dialog, so that comes first.
        if ctx.judge.prompts is JudgePrompts.AS_POLICY:
            messages: list[Message] = []
            if ctx.dialogue.style == "compact":
                # Not strict: a last prompt that did not fit the context has no response.
                for prompt, turn in zip(self.episode.prompts, self.turns, strict=False):
                    messages += [*prompt, Message("assistant", turn.response)]
            messages += request.messages
        else:
            messages = request.instructions()
        answer = await ctx.judge.write(messages, (*ctx.address, self.kind.value, "judge", *self._where()))
        ctx.counters["tokens/judge"] += answer.tokens.response
        ctx.counters["prompt/judge"] += answer.tokens.prompt
        completion = self.conversation.append_text(answer.text)
        if completion.tokens.response > ctx.feedback_sampling.max_tokens:
            return replace(completion, finish_reason=FinishReason.LENGTH)
        return replace(completion, finish_reason=answer.finish_reason)
