"""verl-agent's dialogue form in our words: a fresh prompt each turn with the last few turns."""

from __future__ import annotations

from collections.abc import Sequence

from r3l.envs.base.tagged import TaggedDialogue

from r3l.core.environment import Observation
from r3l.core.task import Task
from r3l.core.text import Message


class VerlAgentFormat(TaggedDialogue):
    """Mixin for a ``TaggedDialogue`` in verl-agent's form: a new prompt each turn, with the last turns in it.

    The number of these turns is the setting ``history``; prompt files are ``window_opening`` and ``window``.
    A prompt of more than ``max_characters`` is replaced by one without earlier turns.
    """

    max_characters: int | None = None

    def opening(self, task: Task, first: Observation) -> list[Message]:
        """One user message: the prompt ``window_opening``, without earlier turns."""
        return [Message("user", self._without_history(first, first))]

    def fresh(
        self,
        task: Task,
        first: Observation,
        answers: Sequence[tuple[Observation, str, str]],
        now: Observation,
    ) -> list[Message]:
        """One user message: the prompt ``window`` with the last ``history`` turns and ``now``."""
        start = max(0, len(answers) - (self.history or 0))
        shown = [
            f"[Observation {k}: '{self.observation_text(first, seen)}', Action {k}: '{action}']"
            for k, (seen, _, action) in enumerate(answers[start:], start + 1)
        ]
        content = self.prompt(
            "window",
            **self.task_values(first),
            taken=len(answers),
            recent=f"The last {len(shown)}:\n" + "\n".join(shown) if shown else "",
            step=len(answers) + 1,
            observation=self.observation_text(first, now),
            **self.action_values(now),
        )
        if self.max_characters is not None and len(content) > self.max_characters:
            content = self._without_history(first, now)
        return [Message("user", content)]

    def _without_history(self, first: Observation, now: Observation) -> str:
        shown = self.observation_text(first, now)
        values = self.task_values(first) | self.action_values(now)
        return self.prompt("window_opening", observation=shown, **values)

    def task_values(self, first: Observation) -> dict[str, str]:
        """Values for the placeholders of a prompt that are about the task, by name; a subclass defines it."""
        raise NotImplementedError

    def observation_text(self, first: Observation, now: Observation) -> str:
        """The text that a prompt shows for the observation ``now``."""
        return now.text.strip()

    def action_values(self, now: Observation) -> dict[str, str]:
        """Values for the placeholders of a prompt's last part: the possible actions and how to answer.

        A subclass defines it.
        """
        raise NotImplementedError
