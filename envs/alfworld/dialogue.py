"""How ALFWorld talks: prompts, the reading of responses, the ending rules. Two styles.

``released`` follows the order and the contents of the original release's prompts (audit, section 3.2) in our
own words; ``compact`` is a bare numbered transcript for small models that learn it from demonstrations.
Both read responses by one rule: exactly one ``<think>..</think>``, exactly one ``<action>..</action>``,
in any order, and the action a literal member of the admissible list.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from importlib import resources
from string import Template
from typing import Any

from envs.alfworld.goals import parse_goal
from r3l.core.environment import Ended, Message, Observation, Parsed
from r3l.core.errors import ConfigError
from r3l.core.task import Task

STYLES = ("released", "compact")
FORMAT, INADMISSIBLE, REPETITION = "format", "inadmissible", "repetition"

_THINK = re.compile(r"<think>.*?</think>", re.DOTALL)
_ACTION = re.compile(r"<action>(.*?)</action>", re.DOTALL)
_TAGS = ("<think>", "</think>", "<action>", "</action>")
_TASK = re.compile(r"Your task is to:\s*(.+)", re.DOTALL)
_BANNER = "-= Welcome to TextWorld, ALFRED! =-"
_RECENT = 4  # actions shown in a later turn
_REPEATS = 3  # identical actions in a row that end an episode


class AlfworldDialogue:
    """The text side of ALFWorld (a ``Dialogue``); stateless. ``max_turns`` counts actions.

    Raises ConfigError for an unknown style or a turn limit below 1.
    """

    domain = "ALFWorld household tasks"

    def __init__(self, style: str, max_turns: int = 25) -> None:
        if style not in STYLES:
            raise ConfigError(f"ALFWorld prompt style {style!r} is unknown; it is one of {', '.join(STYLES)}")
        if max_turns < 1:
            raise ConfigError(f"ALFWorld max_turns is {max_turns}; it must be at least 1")
        self.style = style
        self.max_turns = max_turns

    def opening(self, task: Task, first: Observation) -> list[Message]:
        """What stands before the first response."""
        if self.style == "compact":
            return [Message("user", "0: " + _flat(first.text.replace(_BANNER, " ")))]
        system = _fill("system", max_turns=self.max_turns)
        user = _fill(
            "opening",
            observation=first.text.strip(),
            admissible=_listing(first.admissible),
            contract=_fill("contract"),
        )
        return [Message("system", system), Message("user", user)]

    def following(self, first: Observation, actions: Sequence[str], now: Observation) -> Message:
        """The user turn that shows ``now`` after ``actions``."""
        if self.style == "compact":
            return Message("user", f"{len(actions)}: {_flat(now.text)}")
        content = _fill(
            "following",
            task=task_sentence(first.text),
            taken=len(actions),
            recent=_recent(actions),
            step=len(actions) + 1,
            observation=now.text.strip(),
            admissible=_listing(now.admissible),
            contract=_fill("contract"),
        )
        return Message("user", content)

    def parse(self, response: str, now: Observation, actions: Sequence[str]) -> Parsed:
        """The action of a response, or ``format``, ``inadmissible`` or ``repetition``."""
        found = _ACTION.findall(response)
        if any(response.count(tag) != 1 for tag in _TAGS) or len(found) != 1 or not _THINK.search(response):
            return Parsed(None, FORMAT)
        action = found[0].strip()
        if action not in now.admissible:
            return Parsed(None, INADMISSIBLE)
        recent = [*actions, action][-_REPEATS:]
        if len(recent) == _REPEATS and len(set(recent)) == 1:
            return Parsed(None, REPETITION)
        return Parsed(action)

    def closing(self, reward: float, success: bool, turns: int, error: str | None) -> str:
        """The final feedback on an ended episode."""
        # The rollout stops at the limit, so using it up without success is how an episode exceeds it.
        exceeded = turns > self.max_turns or (turns == self.max_turns and not success and error is None)
        limit = f"{'exceeded' if exceeded else 'within'} the limit of {self.max_turns}"
        outcome = "completed" if success else "not completed"
        if self.style == "compact":
            ended = f" ({error})" if error is not None else ""
            return f"{outcome}{ended}. reward {reward:g}. {turns} steps, {limit}."
        early = f" The episode was ended early: {_REASONS.get(error, error)}." if error is not None else ""
        return f"The task was {outcome}.{early} Reward: {reward:g}. Steps: {turns}, {limit}."

    def review(self, ended: Ended) -> Mapping[str, Any] | None:
        """The scripted reviewer's report, made from the observed texts alone; None for crowd-sourced wordings."""
        from envs.alfworld.demonstrator import review

        goal_text = ended.task.payload.get("goal_text")
        if goal_text is None:
            return None
        answers, blundered = ended.answers, ended.error is not None
        return review(parse_goal(str(goal_text)), ended.first, answers, ended.success, self.max_turns, blundered)


_REASONS = {
    FORMAT: "a response did not hold exactly one <think>...</think> and one <action>...</action>",
    INADMISSIBLE: "an action was not one of the admissible actions",
    REPETITION: f"the same action was given {_REPEATS} times in a row",
    "truncated": "a response was longer than allowed and was cut off",
    "context": "the dialog outgrew the model's context",
}


def task_sentence(first: str) -> str:
    """The task in a first observation; the whole text on one line where there is no such sentence."""
    found = _TASK.search(first)
    return _flat(found[1] if found else first)


def _flat(text: str) -> str:
    return " ".join(text.split())


def _listing(actions: Iterable[str]) -> str:
    return "\n".join(f"- {action}" for action in actions)


def _recent(actions: Sequence[str]) -> str:
    start = max(0, len(actions) - _RECENT)
    shown = "; ".join(f"step {number}: {action}" for number, action in enumerate(actions[start:], start + 1))
    return f"The last {len(actions) - start}: {shown}." if shown else "No action yet."


@lru_cache(maxsize=8)
def _template(name: str) -> Template:
    source = resources.files("envs.alfworld").joinpath("prompts", f"{name}.txt")
    return Template(source.read_text(encoding="utf-8").rstrip("\n"))


def _fill(name: str, **values: object) -> str:
    return _template(name).substitute(values)
