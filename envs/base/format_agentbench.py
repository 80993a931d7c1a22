"""AgentBench's dialogue form in our words: a fresh prompt each turn with all turns so far."""

from __future__ import annotations

from r3l.envs.base.tagged import TaggedDialogue, TaggedOptions

from r3l.core.environment import Observation, Style
from r3l.core.task import Task
from r3l.core.text import Message


class AgentBenchFormat(TaggedDialogue):
    """Mixin for a ``TaggedDialogue`` in AgentBench's form: the dialog is written again each turn.

    A subclass writes it (:meth:`fresh`), and shortens one that is too long (base.agentbench_truncation).
    """

    def __init__(
        self,
        style: Style,
        max_turns: int | None = None,
        options: TaggedOptions | None = None,
    ) -> None:
        super().__init__(style, max_turns, options)
        self.history = self.max_turns  # a fresh prompt each turn, with all turns

    def opening(self, task: Task, first: Observation) -> list[Message]:
        """The prompt of a later turn, without any turns before it."""
        return self.fresh(task, first, (), first)
