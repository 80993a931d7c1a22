"""ALFWorld in the release's own words."""

from __future__ import annotations

import re
from collections.abc import Sequence

from r3l.envs.alfworld.dialogue import AlfworldDialogue
from r3l.envs.tagged_text.released import ReleasedWords, action_in
from r3l.envs.tagged_text.tags import between

from r3l.core.environment import Observation, StopReason
from r3l.core.text import Message

RECENT = 4  # actions shown in a later turn (audit 3.2)

_TASK = re.compile(r"Your task is to:\s*(.+)", re.IGNORECASE)


class ReleasedAlfworldDialogue(ReleasedWords, AlfworldDialogue):
    """The text side of ALFWorld, with ``prompts: released``."""

    system = "alfworld_system"

    def observed(self, first: Observation, actions: Sequence[str], now: Observation) -> Message:
        """Without actions the release shows no task and no history of its own."""
        values: dict[str, object] = {"current_observation": now.text, "admissible_actions": list(now.admissible)}
        if not actions:
            (text,) = self.words.texts("format_observation", *values)
            return Message("user", text.fill(values))
        recent = actions[-RECENT:]
        values |= {
            "task_description": _task(first.text),
            "len(action_history)": len(actions),
            "len(recent_actions)": len(recent),
            "action_history_str": self._history(recent, len(actions) - len(recent)),
            "current_step": len(actions),
        }
        (text,) = self.words.texts("format_observation", *values)
        return Message("user", text.fill(values))

    def _history(self, recent: Sequence[str], before: int) -> str:
        step = "current_step - len(recent_actions) + i"
        (line,) = self.words.texts("format_observation", step, "action")
        return "\n".join(line.fill({step: before + k, "action": action}) for k, action in enumerate(recent))

    def ended_by(self, error: StopReason, response: str) -> str:
        """The feedback on a response that ended the episode; each defect of its tags has its own."""
        action = action_in(response)
        if error is StopReason.REPETITION:
            (text,) = self.words.texts("first_rollout", "repeated_action")
            return text.fill({"repeated_action": action})
        if error is StopReason.INADMISSIBLE:
            text, *_ = self.words.texts("first_rollout", "action", used="observation")
            return text.fill({"action": action})
        thoughts, actions = (len(list(between(response, tag))) for tag in ("think", "action"))
        for count, name in ((thoughts, "len(think_matches)"), (actions, "len(action_matches)")):
            if count > 1:
                (text,) = self.words.texts("parse_response", name, used="return")
                return text.fill({name: count})
        neither, no_thought, no_action, *_ = self.words.texts("parse_response", used="return")
        missing = neither if thoughts == actions else no_action if thoughts else no_thought
        return missing.fill({})


def _task(text: str) -> str:
    """The task in a first observation; its last line where there is no such sentence."""
    found = _TASK.search(text)
    return found[1].strip() if found else text.rsplit("\n", 1)[-1]
