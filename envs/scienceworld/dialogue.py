"""How ScienceWorld talks: prompts, the reading of responses, the ending rules. Two styles.

``released`` follows the order and the contents of the original release's prompts (audit, section 3.4) in our own
words: the task and the first observation, then in every turn the observation and the output contract, with no list
of valid actions. ``compact`` is a numbered transcript of shortened observations (``envs.scienceworld.brief``).
Both take one thought and one action and send any action on: the simulator says what it does not understand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import resources
from string import Template
from typing import Any

from envs.responses import FORMAT, REPEATS, REPETITION, read_action, repeats
from envs.scienceworld.brief import brief, brief_first
from r3l.core.environment import Ended, Message, Observation, Parsed
from r3l.core.errors import ConfigError
from r3l.core.task import Task

STYLES = ("released", "compact")


class ScienceWorldDialogue:
    """The text side of ScienceWorld (a ``Dialogue``); stateless. ``max_turns`` counts actions (released code: 30).

    Raises ConfigError for an unknown style or a turn limit below 1.
    """

    domain = "ScienceWorld science tasks"

    def __init__(self, style: str, max_turns: int = 30) -> None:
        if style not in STYLES:
            raise ConfigError(f"ScienceWorld prompt style {style!r} is unknown; it is one of {', '.join(STYLES)}")
        if max_turns < 1:
            raise ConfigError(f"ScienceWorld max_turns is {max_turns}; it must be at least 1")
        self.style = style
        self.max_turns = max_turns

    def opening(self, task: Task, first: Observation) -> list[Message]:
        """What stands before the first response."""
        if self.style == "compact":
            return [Message("user", f"0: {brief_first(first.text)}")]
        return [Message("system", _fill("system", max_turns=self.max_turns)), self._turn(first)]

    def following(self, first: Observation, actions: Sequence[str], now: Observation) -> Message:
        """The user turn that shows ``now`` after ``actions``."""
        if self.style == "compact":
            return Message("user", f"{len(actions)}: {brief(now.text)}")
        return self._turn(now)

    def parse(self, response: str, now: Observation, actions: Sequence[str]) -> Parsed:
        """The action of a response, or ``format`` or ``repetition``."""
        action = read_action(response)
        if not action:
            return Parsed(None, FORMAT)
        return Parsed(None, REPETITION) if repeats(actions, action) else Parsed(action)

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
        """The scripted reviewer's report, for problems with a stored solution; None for others."""
        from envs.scienceworld.demonstrator import review

        solution = ended.task.payload.get("solution")
        if solution is None:
            return None
        return review(solution, ended.first, ended.answers, ended.success, self.max_turns)

    def _turn(self, now: Observation) -> Message:
        return Message("user", _fill("turn", observation=now.text.strip(), contract=_fill("contract")))


_REASONS = {
    FORMAT: "a response did not hold exactly one <think>...</think> and one <action>...</action> with a command",
    REPETITION: f"the same action was given {REPEATS} times in a row",
    "truncated": "a response was longer than allowed and was cut off",
    "context": "the dialog outgrew the model's context",
}


@lru_cache(maxsize=4)
def _template(name: str) -> Template:
    source = resources.files("envs.scienceworld").joinpath("prompts", f"{name}.txt")
    return Template(source.read_text(encoding="utf-8").rstrip("\n"))


def _fill(name: str, **values: object) -> str:
    return _template(name).substitute(values)
