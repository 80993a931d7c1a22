"""ALFWorld as Trinity-RFT's workflow plays it, in our words (protocol ``trinity``): after the system prompt the
observations alone."""

from __future__ import annotations

from collections.abc import Sequence

from r3l.envs.alfworld.text.dialogue import AlfworldDialogue

from r3l.core.environment import Observation
from r3l.core.task import Task
from r3l.core.text import Message

_REFUSED = "Nothing happens."


class OpenedDialogue(AlfworldDialogue):
    """The text side of ALFWorld where ``response_format`` is ``opened`` (a ``Dialogue``)."""

    def opening(self, task: Task, first: Observation) -> list[Message]:
        return [Message("system", self.prompt("opened_system")), self.following(first, (), first)]

    def following(self, first: Observation, actions: Sequence[str], now: Observation) -> Message:
        advice = " Check that the action is possible, and that you keep to the form." if _REFUSED in now.text else ""
        return Message("user", f"Observation: {now.text.strip()}{advice}")
