"""Trinity-RFT's dialogue form for ALFWorld, in our words (protocol ``trinity``).

After the system prompt, user messages contain only observations.
"""

from __future__ import annotations

from collections.abc import Sequence

from r3l.envs.alfworld.text.dialogue import AlfworldDialogue

from r3l.core.environment import Observation
from r3l.core.task import Task
from r3l.core.text import Message

_REFUSED = "Nothing happens."


class TrinityDialogue(AlfworldDialogue):
    """Trinity-RFT's dialogue form for ALFWorld, in our words (``response_format: opened``).

    After the system prompt, user messages contain only observations.
    """

    def opening(self, task: Task, first: Observation) -> list[Message]:
        return [Message("system", self.prompt("opened_system")), self.following(first, (), first)]

    def following(self, first: Observation, actions: Sequence[str], now: Observation) -> Message:
        advice = ""
        if _REFUSED in now.text:
            advice = " Check that the action is possible, and that you keep to the form."
        return Message("user", f"Observation: {now.text.strip()}{advice}")
