"""WebShop in the release's own words."""

from __future__ import annotations

from collections.abc import Sequence

from r3l.envs.tagged_text.released import ReleasedWords
from r3l.envs.webshop.dialogue import WebshopDialogue, available_actions

from r3l.core.environment import Observation
from r3l.core.text import Message


class ReleasedWebshopDialogue(ReleasedWords, WebshopDialogue):
    """The text side of WebShop, with ``prompts: released``."""

    system = "webshop_system"

    def observed(self, first: Observation, actions: Sequence[str], now: Observation) -> Message:
        """The page, and what can be done on it as Python prints it."""
        (turn,) = self.words.texts("format_observation", "observation", "available_actions")
        return Message("user", turn.fill({"observation": now.text, "available_actions": available_actions(now)}))
