"""ScienceWorld in the release's own words."""

from __future__ import annotations

from collections.abc import Sequence

from r3l.envs.scienceworld.dialogue import ScienceWorldDialogue
from r3l.envs.tagged_text.released import ReleasedWords

from r3l.core.environment import Observation
from r3l.core.text import Message


class ReleasedScienceWorldDialogue(ReleasedWords, ScienceWorldDialogue):
    """The text side of ScienceWorld, with ``prompts: released``."""

    system, reward = "sciworld_system", "final_reward"

    def observed(self, first: Observation, actions: Sequence[str], now: Observation) -> Message:
        """The first observation begins with the task, which the engine's has on its first line."""
        text = now.text
        if not actions:
            task, _, look = text.partition("\n")
            described = "str(env.get_task_description())"
            opening, *_ = self.words.texts("first_rollout", described, "observation")
            text = opening.fill({described: task, "observation": look})
        (turn,) = self.words.texts("format_observation", "observation")
        return Message("user", turn.fill({"observation": text}))
