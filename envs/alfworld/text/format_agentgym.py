"""AgentGym's dialogue form for ALFWorld, in our words (protocol ``agentgym``).

One growing dialog, which lists the admissible actions only at its first turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from r3l.envs.alfworld.text.dialogue import AlfworldDialogue

from r3l.core.environment import Observation
from r3l.core.task import Task
from r3l.core.text import Message

_AGREED = "OK. I will follow these instructions and try to carry out the task."


class AgentGymDialogue(AlfworldDialogue):
    """AgentGym's dialogue form for ALFWorld, in our words (``response_format: last_label``).

    One growing dialog. The setting ``admissible`` says at which turns the admissible actions are listed:
    protocol agentgym sets ``first``; the default is every turn.
    """

    def opening(self, task: Task, first: Observation) -> list[Message]:
        shown = "\n".join(first.text.split("\n\n")[1:])  # without the banner
        task_message = Message("user", shown + self._listing(first.admissible, first_turn=True))
        return [Message("user", self.prompt("agentgym")), Message("assistant", _AGREED), task_message]

    def following(self, first: Observation, actions: Sequence[str], now: Observation) -> Message:
        return Message("user", now.text + self._listing(now.admissible))

    def _listing(self, actions: Iterable[str], first_turn: bool = False) -> str:
        return f"\nAVAILABLE ACTIONS: {','.join(actions)}" if self.lists(first_turn) else ""
