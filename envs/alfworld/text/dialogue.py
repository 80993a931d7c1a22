"""How ALFWorld talks: prompts, the reading of responses, the ending rules.

``full`` follows the order and the contents of the original release's prompts (audit 3.2) in our
own words; ``compact`` is a bare numbered transcript for small models that learn it from demonstrations.
Both read responses by one rule: exactly one ``<think>..</think>``, exactly one ``<action>..</action>``,
in any order, and the action a literal member of the admissible list. In a retry of the release a response that breaks
it costs only a turn (audit B-7).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from r3l.envs.alfworld.expert import AlfworldExpert
from r3l.envs.alfworld.goals import parse_goal
from r3l.envs.alfworld.options import AlfworldOptions
from r3l.envs.base.action_parsers import (
    action_in,
    each_tag_once,
    first_action,
    labelled_action,
    last_labelled_action,
    not_empty,
    one_action,
    one_pair,
    opened_action,
    pairs,
)
from r3l.envs.base.experts import criticise
from r3l.envs.base.tagged import ReleasedWords, TaggedDialogue, repeats

from r3l.core.environment import Critique, Observation, Parsed, StopReason, Transcript
from r3l.core.errors import DataError
from r3l.core.task import Task
from r3l.core.text import Message

_TASK = re.compile(r"Your task is to:\s*(.+)", re.DOTALL)
_RELEASED_TASK = re.compile(r"Your task is to:\s*(.+)", re.IGNORECASE)
_BANNER = "-= Welcome to TextWorld, ALFRED! =-"
_NAME = re.compile(r"[a-z]+ \d+")  # of a thing: mug 2
_WALK = "go to "
_NEAR = 0.01  # AgentBench's
_RECENT = 4  # actions shown in a later turn (audit 3.2)


def without_help(actions: Iterable[str]) -> list[str]:
    """Without the command that some originals leave out of their lists, and older engines do not have."""
    return [action for action in actions if action != "help"]


class AlfworldDialogue(TaggedDialogue):
    """The text side of ALFWorld (a ``Dialogue``)."""

    package, label, domain = "alfworld", "ALFWorld", "ALFWorld household tasks"
    released_turns = 25
    suggestion_optional = True
    readers = {
        "strict": each_tag_once,
        "flexible": one_action,
        "released": one_pair,
        "first": first_action,
        "opened": opened_action,
        "labelled": not_empty(labelled_action(re.compile("ACTION:(.*)"))),
        "last_label": last_labelled_action,
    }
    retry_tolerates = frozenset({StopReason.FORMAT, StopReason.INADMISSIBLE, StopReason.TRUNCATED})
    options_type = AlfworldOptions
    options: AlfworldOptions

    def opening(self, task: Task, first: Observation) -> list[Message]:
        if self.style == "compact":
            return [Message("user", "0: " + _flat(first.text.replace(_BANNER, " ")))]
        system = self.prompt("system", max_turns=self.max_turns)
        user = self.prompt(
            "opening",
            observation=first.text.strip(),
            admissible=self._listing(first.admissible, first_turn=True),
            contract=self._contract(),
        )
        return [Message("system", system), Message("user", user)]

    def following(self, first: Observation, actions: Sequence[str], now: Observation) -> Message:
        if self.style == "compact":
            places = _places(now.admissible) if self.options.list_places else ""
            return Message("user", f"{len(actions)}: {_flat(now.text)}{places}")
        content = self.prompt(
            "following",
            task=task_sentence(first.text),
            taken=len(actions),
            recent=_recent(actions),
            step=len(actions) + 1,
            observation=now.text.strip(),
            admissible=self._listing(now.admissible),
            contract=self._contract(),
        )
        return Message("user", content)

    def parse(self, response: str, now: Observation, actions: Sequence[str]) -> Parsed:
        action = self.action(response)
        if action is None:
            return Parsed(None, StopReason.FORMAT)
        if action not in now.admissible and self.options.impossible == "ends":
            return Parsed(None, StopReason.INADMISSIBLE)
        if self.options.impossible == "nearest":
            action = nearest(action.lower(), now.admissible)
        repeated = repeats(actions, action, self.options.repetitions)
        return Parsed(None, StopReason.REPETITION) if repeated else Parsed(action)

    def lists(self, first_turn: bool) -> bool:
        """Whether the prompt of a turn lists the admissible actions."""
        return self.options.admissible == "shown" or (first_turn and self.options.admissible == "first")

    def _listing(self, actions: Iterable[str], first_turn: bool = False) -> str:
        if not self.lists(first_turn):
            return ""
        return "Admissible actions:\n" + "".join(f"- {action}\n" for action in actions) + "\n"

    def _contract(self) -> str:
        shown = self.options.admissible != "hidden"
        return self.prompt("contract", copied="copied literally from the admissible actions, " if shown else "")

    def names(self, action: str) -> list[str]:
        """The things of an action, each with its number."""
        return _NAME.findall(action)

    def critique(self, transcript: Transcript) -> Critique | None:
        """The scripted critic, who reads the observed texts alone; None for crowd-sourced wordings."""
        try:
            goal = parse_goal(str(transcript.task.payload.get("goal_text", "")))
        except DataError:
            return None
        return criticise(AlfworldExpert.at_start(goal, transcript.first), transcript, self.max_turns)


def nearest(action: str, admissible: Sequence[str]) -> str:
    """``action`` where it is admissible; else the admissible one with the highest BLEU, the first of equals, if it is
    near (as AgentBench does)."""
    if action in admissible:
        return action
    from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu  # takes a second

    smooth = SmoothingFunction().method4
    scores = [sentence_bleu([choice.split()], action.split(), smoothing_function=smooth) for choice in admissible]
    best = max(scores, default=0.0)
    return admissible[scores.index(best)] if best > _NEAR else action


def task_sentence(first: str) -> str:
    """The task in a first observation; the whole text on one line where there is no such sentence."""
    match = _TASK.search(first)
    return _flat(match[1] if match else first)


def _flat(text: str) -> str:
    return " ".join(text.split())


def _places(admissible: Iterable[str]) -> str:
    names = [action.removeprefix(_WALK) for action in admissible if action.startswith(_WALK)]
    return f" Places: {', '.join(names)}." if names else ""


def _recent(actions: Sequence[str]) -> str:
    start = max(0, len(actions) - _RECENT)
    shown = "; ".join(f"step {number}: {action}" for number, action in enumerate(actions[start:], start + 1))
    return f"The last {len(actions) - start}: {shown}." if shown else "No action yet."


class ReleasedAlfworldDialogue(ReleasedWords, AlfworldDialogue):
    """The text side of ALFWorld, with ``prompts: released``."""

    system = "alfworld_system"

    def observed(self, first: Observation, actions: Sequence[str], now: Observation) -> Message:
        """Without actions the release shows no task and no history of its own."""
        values: dict[str, object] = {"current_observation": now.text, "admissible_actions": list(now.admissible)}
        if not actions:
            (text,) = self.words.texts("format_observation", *values)
            return Message("user", text.fill(values))
        recent = actions[-_RECENT:]
        values |= {
            "task_description": _released_task(first.text),
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
        thoughts, acts = pairs(response)
        actions = len(acts)
        for count, name in ((thoughts, "len(think_matches)"), (actions, "len(action_matches)")):
            if count > 1:
                (text,) = self.words.texts("parse_response", name, used="return")
                return text.fill({name: count})
        neither, no_thought, no_action, *_ = self.words.texts("parse_response", used="return")
        missing = neither if thoughts == actions else no_action if thoughts else no_thought
        return missing.fill({})


def _released_task(text: str) -> str:
    """The task in a first observation; its last line where there is no such sentence."""
    found = _RELEASED_TASK.search(text)
    return found[1].strip() if found else text.rsplit("\n", 1)[-1]
