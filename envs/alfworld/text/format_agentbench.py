"""AgentBench's dialogue form for ALFWorld, in our words (protocol ``agentbench``).

The dialog is written again each turn: only the current observation lists the admissible actions, and a
dialog that is too long loses its earliest messages after the instruction.
"""

from __future__ import annotations

from collections.abc import Sequence

from r3l.envs.alfworld.text.dialogue import AlfworldDialogue, without_help
from r3l.envs.alfworld.text.format_react import family_of
from r3l.envs.base.action_parsers import example_turns
from r3l.envs.base.agentbench_truncation import truncate
from r3l.envs.base.format_agentbench import AgentBenchFormat

from r3l.core.environment import Observation, Parsed
from r3l.core.task import Task
from r3l.core.text import Message

_FIRST_CHECKED = 4  # first turn at which repeated actions end an episode


class AgentBenchDialogue(AgentBenchFormat, AlfworldDialogue):
    """AgentBench's dialogue form for ALFWorld, in our words (``response_format: labelled``).

    Admissible actions are listed only in the current observation, and only at the turns that the setting
    ``admissible`` names. A dialog that is too long loses its earliest messages after the instruction. Raises
    ConfigError as :class:`TaggedDialogue` does.
    """

    def fresh(
        self,
        task: Task,
        first: Observation,
        answers: Sequence[tuple[Observation, str, str]],
        now: Observation,
    ) -> list[Message]:
        # The instruction and one example.
        messages = [Message("user", self.prompt("labelled")), Message("assistant", "OK.")]
        example = example_turns(self.options.examples.get(family_of(task), ("",))[0])
        for number, (seen_text, thought, action) in enumerate(example):
            introduction = "" if number else "Here is one example.\n"
            messages.append(Message("user", introduction + seen_text))
            reason = f"THOUGHT: {thought}\n" if thought else ""
            messages.append(Message("assistant", f"{reason}ACTION: {action}"))

        # The turns so far, and the current observation.
        shown = [*(seen.text for seen, _, _ in answers), now.text]
        shown[0] = "Here is your task. " + "\n".join(first.text.split("\n\n")[1:])  # without the banner
        for text, (_, response, _) in zip(shown, answers, strict=False):
            messages += [Message("user", f"{text} "), Message("assistant", response)]
        listed = ""
        if self.lists(first_turn=not answers):
            listed = " AVAILABLE ACTIONS: " + "\n".join(without_help(now.admissible)) + "\n"
        return truncate([*messages, Message("user", shown[-1] + listed)])

    def parse(self, response: str, now: Observation, actions: Sequence[str]) -> Parsed:
        checked = actions if len(actions) >= _FIRST_CHECKED - 1 else ()
        return super().parse(response, now, checked)
