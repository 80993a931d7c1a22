"""A fresh prompt each turn, as verl-agent plays: the last observations and actions, in our words."""

from __future__ import annotations

from collections.abc import Sequence

from r3l.envs.base.tagged import TaggedDialogue

from r3l.core.environment import Observation
from r3l.core.task import Task
from r3l.core.text import Message


class Windowed(TaggedDialogue):
    """Mixed into a ``TaggedDialogue`` where ``history`` is set; its prompts are ``window_opening`` and ``window``."""

    def opening(self, task: Task, first: Observation) -> list[Message]:
        content = self.prompt(
            "window_opening", **self.window_task(first), observation=self.window_text(first, first), **self.asked(first)
        )
        return [Message("user", content)]

    def fresh(
        self, task: Task, first: Observation, answers: Sequence[tuple[str, str, str]], now: Observation
    ) -> list[Message]:
        start = max(0, len(answers) - (self.history or 0))
        shown = [
            f"[Observation {k}: '{self.window_text(first, Observation(text))}', Action {k}: '{action}']"
            for k, (text, _, action) in enumerate(answers[start:], start + 1)
        ]
        content = self.prompt(
            "window",
            **self.window_task(first),
            taken=len(answers),
            recent=f"The last {len(shown)}:\n" + "\n".join(shown) if shown else "",
            step=len(answers) + 1,
            observation=self.window_text(first, now),
            **self.asked(now),
        )
        return [Message("user", content)]

    def window_task(self, first: Observation) -> dict[str, str]:
        """What the prompts say of the task."""
        raise NotImplementedError

    def window_text(self, first: Observation, now: Observation) -> str:
        """What is shown of an observation."""
        return now.text.strip()

    def asked(self, now: Observation) -> dict[str, str]:
        """The last part of a prompt: what can be done, and how to answer."""
        raise NotImplementedError
