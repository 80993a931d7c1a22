"""The text side of an environment in one file: its rules, its observations as they are, one action in tags."""

from __future__ import annotations

from collections.abc import Sequence

from r3l.envs.one_file.player import ErringPlayer, Player
from r3l.envs.scripted.expert import criticise
from r3l.envs.tagged_text.dialogue import TaggedDialogue
from r3l.envs.tagged_text.responses import each_tag_once, repeats

from r3l.core.environment import Critique, Observation, Parsed, StopReason, Style, Transcript
from r3l.core.task import Task
from r3l.core.text import Message

FORMAT = "Answer with <think>...</think> and one <action>...</action>."


class OneFileDialogue(TaggedDialogue):
    """The text side (a ``Dialogue``). ``rules``: what a large model is told first; a small one learns them."""

    reasons = {StopReason.INADMISSIBLE: "an action was not one of the admissible actions"}

    def __init__(self, domain: str, rules: str, player: Player | None, style: Style, max_turns: int) -> None:
        self.domain = self.label = domain
        self._rules, self._player = rules, player
        super().__init__(style, max_turns)

    def opening(self, task: Task, first: Observation) -> list[Message]:
        """The rules and the first observation; in the compact style that alone."""
        if self.style == "compact":
            return [Message("user", f"0: {first.text}")]
        return [Message("system", f"{self._rules}\n{FORMAT}"), Message("user", first.text)]

    def following(self, first: Observation, actions: Sequence[str], now: Observation) -> Message:
        """The observation."""
        return Message("user", f"{len(actions)}: {now.text}" if self.style == "compact" else now.text)

    def parse(self, response: str, now: Observation, actions: Sequence[str]) -> Parsed:
        """The action of a response, or ``format``, ``inadmissible`` or ``repetition``."""
        action = each_tag_once(response)
        if action is None:
            return Parsed(None, StopReason.FORMAT)
        if now.admissible and action not in now.admissible:
            return Parsed(None, StopReason.INADMISSIBLE)
        return Parsed(None, StopReason.REPETITION) if repeats(actions, action) else Parsed(action)

    def critique(self, transcript: Transcript) -> Critique | None:
        """What the scripted player says; None where there is none."""
        if self._player is None:
            return None
        return criticise(ErringPlayer(self._player, transcript.first), transcript, self.max_turns)
