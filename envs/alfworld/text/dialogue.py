"""Dialogues of ALFWorld: prompts, parsing of responses, rules that end an episode.

The style ``full`` follows the order and the contents of the released prompts (audit 3.2) in our words;
``compact`` is a bare numbered transcript for small models that learn it from demonstrations. Both parse
responses by one rule: exactly one ``<think>..</think>`` and one ``<action>..</action>``, in any order, and
the action is literally one of the admissible ones. In a retry of the release, a response that breaks the
rule costs only a turn (audit B-7).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from r3l.envs.alfworld.expert import AlfworldExpert
from r3l.envs.alfworld.goals import parse_goal
from r3l.envs.alfworld.options import AlfworldOptions
from r3l.envs.base.action_parsers import (
    action_in,
    agentbench_action,
    agentgym_action,
    each_tag_once,
    not_empty,
    one_action,
    one_pair,
    pairs,
    trinity_action,
    verl_agent_action,
)
from r3l.envs.base.experts import criticise
from r3l.envs.base.tagged import ReleasedDialogue, TaggedDialogue, repeats

from r3l.core.environment import Critique, Observation, Parsed, StopReason, Transcript
from r3l.core.errors import DataError
from r3l.core.task import Task
from r3l.core.text import Message

_TASK = re.compile(r"Your task is to:\s*(.+)", re.DOTALL)
_RELEASED_TASK = re.compile(r"Your task is to:\s*(.+)", re.IGNORECASE)
_BANNER = "-= Welcome to TextWorld, ALFRED! =-"
_NAME = re.compile(r"[a-z]+ \d+")  # e.g. mug 2
_WALK = "go to "
_MIN_BLEU = 0.01  # AgentBench's threshold
_RECENT = 4  # actions shown in a later turn (audit 3.2)


def without_help(actions: Iterable[str]) -> list[str]:
    """``actions`` without ``help``, which some original lists omit and older engines do not have."""
    return [action for action in actions if action != "help"]


class AlfworldDialogue(TaggedDialogue):
    """The default ``Dialogue`` of ALFWorld: one growing dialog, responses in tags."""

    package = "alfworld"
    label = "ALFWorld"
    domain = "ALFWorld household tasks"
    released_turns = 25
    suggestion_optional = True
    action_parsers = {
        "strict": each_tag_once,
        "flexible": one_action,
        "released": one_pair,
        "first": verl_agent_action,
        "opened": trinity_action,
        "labelled": not_empty(agentbench_action(re.compile("ACTION:(.*)"))),
        "last_label": agentgym_action,
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
            names = [action.removeprefix(_WALK) for action in now.admissible if action.startswith(_WALK)]
            places = f" Places: {', '.join(names)}." if names and self.options.list_places else ""
            return Message("user", f"{len(actions)}: {_flat(now.text)}{places}")
        start = max(0, len(actions) - _RECENT)
        recent = enumerate(actions[start:], start + 1)
        shown = "; ".join(f"step {number}: {action}" for number, action in recent)
        content = self.prompt(
            "following",
            task=task_sentence(first.text),
            taken=len(actions),
            recent=f"The last {len(actions) - start}: {shown}." if shown else "No action yet.",
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
        """True if the first prompt (``first_turn``), or later ones, list the admissible actions."""
        return self.options.admissible == "shown" or (first_turn and self.options.admissible == "first")

    def _listing(self, actions: Iterable[str], first_turn: bool = False) -> str:
        """The list of admissible actions in a prompt, or ""."""
        if not self.lists(first_turn):
            return ""
        return "Admissible actions:\n" + "".join(f"- {action}\n" for action in actions) + "\n"

    def _contract(self) -> str:
        """The paragraph of a prompt that says how to answer."""
        shown = self.options.admissible != "hidden"
        return self.prompt(
            "contract",
            copied="copied literally from the admissible actions, " if shown else "",
        )

    def names(self, action: str) -> list[str]:
        """Names in an action, which a policy copies from observations.

        They are objects and receptacles with their numbers, such as ``mug 2``.
        """
        return _NAME.findall(action)

    def critique(self, transcript: Transcript) -> Critique | None:
        """The scripted critic's judgement of an episode, made only from its texts.

        None for a crowd-sourced task sentence, which the critic cannot parse.
        """
        try:
            goal = parse_goal(str(transcript.task.payload.get("goal_text", "")))
        except DataError:
            return None
        return criticise(AlfworldExpert.at_start(goal, transcript.first), transcript, self.max_turns)


def nearest(action: str, admissible: Sequence[str]) -> str:
    """The admissible action with the highest BLEU to an inadmissible one, as AgentBench does.

    Of equals the first is taken. ``action`` is returned if it is admissible, or if no BLEU exceeds
    AgentBench's threshold.
    """
    if action in admissible:
        return action
    from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu  # the import takes a second

    smooth = SmoothingFunction().method4
    words = action.split()
    scores = [sentence_bleu([choice.split()], words, smoothing_function=smooth) for choice in admissible]
    best = max(scores, default=0.0)
    return admissible[scores.index(best)] if best > _MIN_BLEU else action


def task_sentence(first: str) -> str:
    """The text after "Your task is to:" in a first observation, on one line.

    The complete text, on one line, if it has no such words.
    """
    match = _TASK.search(first)
    return _flat(match[1] if match else first)


def _flat(text: str) -> str:
    return " ".join(text.split())


class ReleasedAlfworldDialogue(ReleasedDialogue, AlfworldDialogue):
    """``AlfworldDialogue`` with the prompts of the paper's released code (``prompts: released``).

    The first prompt has only the observation and the admissible actions; later ones also have the task and
    the last 4 actions.
    """

    system = "alfworld_system"

    def observed(self, first: Observation, actions: Sequence[str], now: Observation) -> Message:
        values: dict[str, object] = {
            "current_observation": now.text,
            "admissible_actions": list(now.admissible),
        }
        # The release's first user message has neither task nor history.
        if not actions:
            (text,) = self.words.texts("format_observation", *values)
            return Message("user", text.fill(values))

        # The keys are the expressions in the f-strings of the released code. After an error that a retry
        # survived, steps are counted on but no action is added (audit B-7).
        recent = actions[-_RECENT:]
        current_step = len(actions) + now.unrecorded
        before = current_step - len(recent)
        step = "current_step - len(recent_actions) + i"
        (line,) = self.words.texts("format_observation", step, "action")
        history = [line.fill({step: before + k, "action": action}) for k, action in enumerate(recent)]
        task = _RELEASED_TASK.search(first.text)
        values |= {
            "task_description": task[1].strip() if task else first.text.rsplit("\n", 1)[-1],
            "len(action_history)": len(actions),
            "len(recent_actions)": len(recent),
            "action_history_str": "\n".join(history),
            "current_step": current_step,
        }
        (text,) = self.words.texts("format_observation", *values)
        return Message("user", text.fill(values))

    def tolerated(self, error: StopReason, response: str) -> str:
        """The observation after an ``error`` that does not end a retry: the text of :meth:`ended_by`."""
        return self.ended_by(error, response)

    def ended_by(self, error: StopReason, response: str) -> str:
        """The released code's feedback on a response that ended the episode.

        Each defect of the tags has its own text; for a repeated or an impossible action it names the action.
        """
        action = action_in(response)
        if error is StopReason.REPETITION:
            (text,) = self.words.texts("first_rollout", "repeated_action")
            return text.fill({"repeated_action": action})
        if error is StopReason.INADMISSIBLE:
            text, *_ = self.words.texts("first_rollout", "action", used="observation")
            return text.fill({"action": action})
        thoughts, found = pairs(response)
        actions = len(found)
        for count, name in ((thoughts, "len(think_matches)"), (actions, "len(action_matches)")):
            if count > 1:
                (text,) = self.words.texts("parse_response", name, used="return")
                return text.fill({name: count})
        # Neither occurs twice, so one or both are missing.
        neither, no_thought, no_action, *_ = self.words.texts("parse_response", used="return")
        if thoughts == actions:
            return neither.fill({})
        return no_action.fill({}) if thoughts else no_thought.fill({})
