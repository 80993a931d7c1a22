"""The release's own words in the agentic environments (``prompts: released``, docs/prompts.md)."""

from __future__ import annotations

from collections.abc import Sequence

from r3l.envs.tagged_text.dialogue import TaggedDialogue
from r3l.envs.tagged_text.options import ResponseFormat
from r3l.envs.tagged_text.tags import first_between

from r3l.core.environment import Observation, StopReason, Style
from r3l.core.task import Task
from r3l.core.text import Message
from r3l.original.prompts import ReleasedPrompts


class ReleasedWords(TaggedDialogue):
    """Mixed into a ``TaggedDialogue``: rules are that one's, words the release's.

    ``system``: its system template; ``reward``: what its code calls an episode's reward. Raises ConfigError without a
    clone of the release.
    """

    system: str
    reward = "reward"
    styles = ("released",)
    words: ReleasedPrompts

    def __init__(self, style: Style, max_turns: int | None = None, response_format: ResponseFormat = "strict") -> None:
        super().__init__(style, max_turns, response_format)
        self.words = self.release = ReleasedPrompts(self.package)
        self.words.template(self.system)  # no clone is an error now, not in the middle of a run

    def opening(self, task: Task, first: Observation) -> list[Message]:
        """What stands before the first response."""
        return [Message("system", self.words.template(self.system)), self.observed(first, [], first)]

    def following(self, first: Observation, actions: Sequence[str], now: Observation) -> Message:
        """The user turn that shows ``now`` after ``actions``."""
        return self.observed(first, actions, now)

    def observed(self, first: Observation, actions: Sequence[str], now: Observation) -> Message:
        """The user turn, first or later."""
        raise NotImplementedError

    def closing(self, reward: float, success: bool, turns: int, error: StopReason | None, response: str = "") -> str:
        """The final feedback on an ended episode; none where the dialog outgrew the context."""
        if error is StopReason.CONTEXT:
            return ""
        if error is not None:
            return self.ended_by(error, response)
        fields = (self.reward, "self.max_env_steps", "step + 1")
        four = self.words.texts("first_rollout", *fields)  # won early, won late, lost early, lost late
        which = 2 * (reward < 1) + (turns >= self.max_turns)
        return four[which].fill(dict(zip(fields, (float(reward), self.max_turns, turns), strict=True)))

    def ended_by(self, error: StopReason, response: str) -> str:
        """The feedback on a response that ended the episode."""
        fields = ("action",) if error is StopReason.REPETITION else ()
        text, *_ = self.words.texts("first_rollout", *fields, used="feedback")
        return text.fill({"action": action_in(response)})


def action_in(response: str) -> str:
    """The first action of a response, as the release names it in its feedback."""
    return (first_between(response, "action") or "").strip()
