"""ALFWorld as AgentBench's paper plays it, in our words (protocol ``agentbench``).

The dialog is sent again each turn, but of its observations only the present one lists the admissible actions, and the
earliest messages after the instruction are left out where it grows too long.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from r3l.envs.alfworld.options import AlfworldOptions
from r3l.envs.alfworld.text.dialogue import AlfworldDialogue, without_help
from r3l.envs.alfworld.text.format_react import family_of
from r3l.envs.base.action_parsers import example_turns
from r3l.envs.base.agentbench_truncation import latest

from r3l.core.environment import Observation, Parsed, Style
from r3l.core.task import Task
from r3l.core.text import Message

_FIRST_CHECKED = 4  # the turn from which equal actions end an episode


class LabelledDialogue(AlfworldDialogue):
    """The text side of ALFWorld where ``response_format`` is ``labelled`` (a ``Dialogue``)."""

    def __init__(self, style: Style, max_turns: int | None = None, options: AlfworldOptions | None = None) -> None:
        super().__init__(style, max_turns, options)
        self.history = self.max_turns  # all of it, but as a fresh prompt: what earlier turns show has changed

    def opening(self, task: Task, first: Observation) -> list[Message]:
        return self.fresh(task, first, (), first)

    def fresh(
        self, task: Task, first: Observation, answers: Sequence[tuple[Observation, str, str]], now: Observation
    ) -> list[Message]:
        messages = [Message("user", self.prompt("labelled")), Message("assistant", "OK.")]
        messages += _example(self.options.examples.get(family_of(task), ("",))[0])
        shown = [*(seen.text for seen, _, _ in answers), now.text]
        shown[0] = "Here is your task. " + "\n".join(first.text.split("\n\n")[1:])  # without the banner
        for text, (_, response, _) in zip(shown, answers, strict=False):
            messages += [Message("user", f"{text} "), Message("assistant", response)]
        listed = (
            " AVAILABLE ACTIONS: " + "\n".join(without_help(now.admissible)) + "\n" if self.lists(not answers) else ""
        )
        return latest([*messages, Message("user", shown[-1] + listed)])

    def parse(self, response: str, now: Observation, actions: Sequence[str]) -> Parsed:
        checked = actions if len(actions) >= _FIRST_CHECKED - 1 else ()
        return super().parse(response, now, checked)


def _example(text: str) -> Iterator[Message]:
    """The messages of a transcript up to its last action."""
    for number, (seen, thought, action) in enumerate(example_turns(text)):
        yield Message("user", ("" if number else "Here is one example.\n") + seen)
        yield Message("assistant", (f"THOUGHT: {thought}\n" if thought else "") + f"ACTION: {action}")
