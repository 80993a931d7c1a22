"""A fresh prompt each turn, as verl-agent plays: the last observations and actions, in our words."""

from __future__ import annotations

from collections.abc import Sequence

from r3l.envs.base.tagged import TaggedDialogue

from r3l.core.environment import Observation
from r3l.core.task import Task
from r3l.core.text import Message


class Windowed(TaggedDialogue):
    """Mixed into a ``TaggedDialogue`` where ``history`` is set; its prompts are ``window_opening`` and ``window``.

    A prompt of more than ``longest`` characters is written as the first one is, with nothing of the turns before.
    """

    longest: int | None = None

    def opening(self, task: Task, first: Observation) -> list[Message]:
        return [Message("user", self._without_history(first, first))]

    def fresh(
        self, task: Task, first: Observation, answers: Sequence[tuple[Observation, str, str]], now: Observation
    ) -> list[Message]:
        start = max(0, len(answers) - (self.history or 0))
        shown = [
            f"[Observation {k}: '{self.window_text(first, seen)}', Action {k}: '{action}']"
            for k, (seen, _, action) in enumerate(answers[start:], start + 1)
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
        if self.longest is not None and len(content) > self.longest:
            content = self._without_history(first, now)
        return [Message("user", content)]

    def _without_history(self, first: Observation, now: Observation) -> str:
        shown = self.window_text(first, now)
        return self.prompt("window_opening", **self.window_task(first), observation=shown, **self.asked(now))

    def window_task(self, first: Observation) -> dict[str, str]:
        """What the prompts say of the task."""
        raise NotImplementedError

    def window_text(self, first: Observation, now: Observation) -> str:
        """What is shown of an observation."""
        return now.text.strip()

    def asked(self, now: Observation) -> dict[str, str]:
        """The last part of a prompt: what can be done, and how to answer."""
        raise NotImplementedError
