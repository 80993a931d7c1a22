"""ReAct's dialogue form for ALFWorld, in our words (protocol ``react``).

The dialog is a bare transcript of commands and answers; a turn of the model is one line. ``> think: ...``
is a thought; as in the original, the engine receives it like any other line, but the prompt answers ``OK.``
instead of the engine's ``Nothing happens.``
"""

from __future__ import annotations

from collections.abc import Sequence

from r3l.envs.alfworld.goals import FAMILIES
from r3l.envs.alfworld.text.dialogue import AlfworldDialogue
from r3l.envs.base.tagged import repeats

from r3l.core.environment import Observation, Parsed, Stop, StopReason
from r3l.core.task import Task
from r3l.core.text import Message

THOUGHT = "think:"
_PROMPT = "\n>"


class ReactDialogue(AlfworldDialogue):
    """ReAct's dialogue form for ALFWorld, in our words (``turn: line``).

    A transcript of commands and answers; a turn of the model is one line.
    """

    stop: Stop = "line"

    def opening(self, task: Task, first: Observation) -> list[Message]:
        _, _, shown = first.text.partition("\n\n")  # without the banner
        examples: Sequence[str] = ()
        if self.options.examples:
            examples = self.options.examples.get(family_of(task), ())
        if examples:
            text = self.prompt("lines_examples", examples="".join(examples))
        else:
            text = self.prompt("lines")
        return [Message("user", text + "\n" + self._shown(shown.replace("\n\n", "\n"), first, True))]

    def following(self, first: Observation, actions: Sequence[str], now: Observation) -> Message:
        thought = bool(actions) and actions[-1].startswith(THOUGHT)
        return Message("user", self._shown("OK." if thought else now.text, now))

    def parse(self, response: str, now: Observation, actions: Sequence[str]) -> Parsed:
        action = response.partition("\n")[0].strip()
        impossible = action not in now.admissible and not action.startswith(THOUGHT)
        if impossible and self.options.impossible == "ends":
            return Parsed(None, StopReason.INADMISSIBLE)
        repeated = repeats(actions, action, self.options.repetitions)
        return Parsed(None, StopReason.REPETITION) if repeated else Parsed(action)

    def _shown(self, text: str, now: Observation, first_turn: bool = False) -> str:
        listed = f"\nAdmissible actions: {', '.join(now.admissible)}" if self.lists(first_turn) else ""
        return text + listed + _PROMPT


def family_of(task: Task) -> str:
    """The task type, such as ``pick_and_place_simple``: a published game's group, a house's ``family``."""
    return task.group if task.group in FAMILIES else str(task.payload["family"])
