"""Responses with one thought and one action in tags, and the dialogues made of them: what agentic environments share.

A reader gives the action of a response, without the blanks around it, or None where there is none. The released code
has two (``one_pair`` on ALFWorld, ``first_pair`` elsewhere), to which an empty action is an action (audit B-42). What a
thought names is not read, and a chat template may have opened the thought: then its end stands alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import cache
from importlib import resources
from string import Template
from typing import Literal, TypeVar

from r3l.envs.base.package import Options

from r3l.core.environment import Observation, Stop, StopReason, Style
from r3l.core.errors import ConfigError
from r3l.core.option import option
from r3l.core.task import Task
from r3l.core.text import THOUGHT, Message, split_thought, with_opening
from r3l.original.prompts import ReleasedPrompts

REPEATS = 3  # identical actions in a row that end an episode (audit 3.1)
OUR_STYLES: tuple[Style, ...] = ("full", "compact")  # which every environment has
_TAGS = ("<think>", "</think>", "<action>", "</action>")

Reader = Callable[[str], str | None]
ResponseFormat = Literal["strict", "flexible", "released", "first", "opened", "labelled", "last_label"]


def between(text: str, name: str, any_case: bool = False) -> Iterator[slice]:
    """Where the texts between ``<name>`` and the next ``</name>`` stand, from left to right; in linear time.

    A further ``<name>`` in such a text is part of it, and one that is never closed is none.
    """
    start: int | None = None
    for tag in _tag(name, any_case).finditer(text):
        if not tag[1]:
            start = tag.end() if start is None else start
        elif start is not None:
            yield slice(start, tag.start())
            start = None


def first_between(text: str, name: str, any_case: bool = False) -> str | None:
    """The first text between such tags; None where there is none."""
    where = next(between(text, name, any_case), None)
    return None if where is None else text[where]


@cache
def _tag(name: str, any_case: bool) -> re.Pattern[str]:
    return re.compile(rf"<(/?){name}>", re.IGNORECASE if any_case else 0)


def each_tag_once(response: str) -> str | None:
    """Of a response with exactly one thought and one action, in any order, and no tag beside theirs."""
    found = split_thought(response)
    beside = f"{found.before}\n{found.after}"
    alone = [beside.count(tag) for tag in _TAGS] == [0, 0, 1, 1]
    return one_pair(response) if found.after is not None and found.thought is not None and alone else None


def one_pair(response: str) -> str | None:
    """Of a response with exactly one thought and one action, in any order; a lone tag beside them does not count."""
    thoughts, actions = pairs(response)
    return actions[0].strip() if thoughts == len(actions) == 1 else None


def pairs(response: str) -> tuple[int, list[str]]:
    """How many thoughts a response has, and the actions outside the first: what a thought names is not done."""
    response = with_opening(response)
    thoughts = list(between(response, "think"))
    thought = thoughts[0] if thoughts else slice(0, 0)
    outside = response[: thought.start], response[thought.stop :]
    return len(thoughts), [text[where] for text in outside for where in between(text, "action")]


def first_pair(response: str) -> str | None:
    """The first action after the end of a thought, whatever else there is."""
    response = with_opening(response)
    thought = next(between(response, "think"), None)
    action = None if thought is None else first_between(response[thought.stop :], "action")
    return None if action is None else action.strip()


def one_action(response: str) -> str | None:
    """Of a response with exactly one action beside its thought; there need not be one."""
    found = split_thought(response)
    actions = [text[where].strip() for text in (found.before, found.after or "") for where in between(text, "action")]
    return actions[0] or None if len(actions) == 1 else None


def first_action(response: str, rest: int = 30) -> str:
    """As verl-agent reads: in lower case, what stands before the first end tag; without tags the last characters."""
    text = response.lower()
    start, end = text.find("<action>"), text.find("</action>")
    return text[-rest:] if start == -1 or end == -1 else text[start + len("<action>") : end].strip()


def opened_action(response: str) -> str:
    """As Trinity-RFT reads: what follows the first tag, closed or not; without one an empty action."""
    _, _, after = response.partition("<action>")
    return after.partition("<action>")[0].partition("</action>")[0].strip()


def labelled_action(label: re.Pattern[str]) -> Reader:
    """As AgentBench reads: what the first group of ``label`` finds first."""

    def read(response: str) -> str | None:
        found = label.search(response)
        return found[1].strip() if found else None

    return read


def last_labelled_action(response: str) -> str:
    """As AgentGym reads: all that follows the last ``Action:``; without one an empty action."""
    return response.rpartition("Action:")[2].strip() if "Action:" in response else ""


def not_empty(read: Reader) -> Reader:
    """``read``, but an empty action is none."""
    return lambda response: read(response) or None


_EXAMPLE = re.compile(r"^(?:> think: (.*)\nOK\.\n)?> (.*)\n", re.MULTILINE)


def example_turns(transcript: str) -> list[tuple[str, str, str]]:
    """(observation, thought, action) of a few-shot transcript of lines: ``> think: WHY``, ``OK.``, ``> ACTION``, ..."""
    parts = _EXAMPLE.split(transcript)
    turns = zip(parts[0::3], parts[1::3], parts[2::3], strict=False)  # what the last action leads to is left out
    return [(seen.strip(), thought or "", action) for seen, thought, action in turns]


def write_response(thought: str, action: str) -> str:
    """A response in the format."""
    return f"<think>{thought}</think><action>{action}</action>"


def repeats(actions: Sequence[str], action: str, times: int) -> bool:
    """Whether ``action`` would be the same for the ``times``-th time in a row; with 0, never."""
    return times > 1 and len(actions) >= times - 1 and set(actions[-(times - 1) :]) == {action}


class TaggedOptions(Options):
    """Settings that environments with tagged responses share. ``response_format``: which reader of the dialogue.

    Protocols (configs/protocols) are made of them; the defaults are the release's rules.
    """

    response_format: ResponseFormat = option(
        "strict",
        "which responses hold an action (B-42); flexible: without a thought too; first: as verl-agent; opened: as "
        "Trinity-RFT; labelled: as AgentBench; last_label: as AgentGym",
        "our choice: one reading in training and evaluation",
    )
    unreadable: Literal["ends", "turn"] = option(
        "ends",
        "what a response without an action does: it ends the episode, or it is a turn, in which the environment is "
        "given the response as it is",
        "released code: it ends a first attempt (audit 3.1)",
    )
    repetitions: int = option(
        REPEATS, "identical actions in a row that end an episode; 0: none do", "released code (audit 3.1)", ge=0
    )
    history: int | None = option(
        None,
        "each turn is a fresh prompt with so many observations and actions before it; none: one dialog",
        "released code: the dialog (audit 3.2)",
        ge=0,
    )


OptionsT = TypeVar("OptionsT", bound=TaggedOptions)


def check_released(env: str, options: OptionsT, followed: Set[str]) -> OptionsT:
    """``options``. Raises ConfigError where the release's prompts cannot follow a setting."""
    own = options.model_dump(exclude_defaults=True, exclude={"response_format", *followed})
    if own:
        raise ConfigError(
            f"{env}: prompts 'released' has the release's own rules, not {', '.join(own)}; set prompts=full"
        )
    return options


class TaggedDialogue:
    """Base of a ``Dialogue`` whose responses hold one thought and one action in tags. Stateless.

    ``max_turns`` counts actions; by default the released code's limit. Subclasses say what they are about, which
    readers they have and which reasons of their own; prompt texts lie in ``envs/<package>/prompts``. Raises ConfigError
    for an unknown style or a turn limit below 1.
    """

    stop: Stop = "end"
    package: str
    label: str
    domain: str
    released_turns: int  # the released code's limit (audit 3.1)
    readers: Mapping[ResponseFormat, Reader] = {"strict": each_tag_once}
    retry_tolerates: frozenset[StopReason] = frozenset()
    options_type: type[TaggedOptions] = TaggedOptions
    options: TaggedOptions
    undertaking = "task"
    suggestion_optional = False
    styles = OUR_STYLES
    release: ReleasedPrompts | None = None
    reasons: Mapping[StopReason, str] = {}
    _REASONS: Mapping[StopReason, str] = {
        StopReason.FORMAT: "a response did not hold exactly one <think>...</think> and one <action>...</action>",
        StopReason.INADMISSIBLE: "an action was not one of the admissible actions",
        StopReason.TRUNCATED: "a response was longer than allowed and was cut off",
        StopReason.CONTEXT: "the dialog outgrew the model's context",
    }

    def __init__(self, style: Style, max_turns: int | None = None, options: TaggedOptions | None = None) -> None:
        max_turns = self.released_turns if max_turns is None else max_turns
        check_style(self.label, style, max_turns, self.styles)
        self.style = style
        self.max_turns = max_turns
        self.options = options or self.options_type()
        self.lenient = self.options.unreadable == "turn"
        self.history = self.options.history
        if self.options.response_format not in self.readers:
            known = ", ".join(self.readers)
            raise ConfigError(f"{self.label} has no response_format {self.options.response_format!r}; it has {known}")

    def read(self, response: str) -> str | None:
        """The action of a response, None where it has none.

        No chat template opens a thought in the compact style: its models were taught to write both tags.
        """
        if self.style == "compact" and THOUGHT not in response:
            return None
        return self.readers[self.options.response_format](response)

    def action(self, response: str) -> str | None:
        """``read``, or where no response ends an episode all of it, which the environment then answers."""
        found = self.read(response)
        return response.strip() if found is None and self.lenient else found

    def fresh(
        self, task: Task, first: Observation, answers: Sequence[tuple[str, str, str]], now: Observation
    ) -> list[Message]:
        """Where ``history`` is set, which a subclass does."""
        raise NotImplementedError

    def names(self, action: str) -> list[str]:
        """The names in an action, which a policy has to copy from what it was shown; here all words but the first."""
        return action.split()[1:]

    def possible(self, action: str, now: Observation) -> bool:
        """Whether an action can be taken now, as far as the environment says."""
        return not now.admissible or action in now.admissible

    def closing(self, reward: float, success: bool, turns: int, error: StopReason | None, response: str = "") -> str:
        """The final feedback on an ended episode."""
        # The rollout stops at the limit, so using it up without success is how an episode exceeds it.
        exceeded = turns > self.max_turns or (turns == self.max_turns and not success and error is None)
        limit = f"{'exceeded' if exceeded else 'within'} the limit of {self.max_turns}"
        outcome = "completed" if success else "not completed"
        if self.style == "compact":
            ended = f" ({error})" if error is not None else ""
            return f"{outcome}{ended}. reward {reward:.3g}. {turns} steps, {limit}."
        times = {2: "twice"}.get(self.options.repetitions, f"{self.options.repetitions} times")
        repeated = {StopReason.REPETITION: f"the same action was given {times} in a row"}
        reasons = {**self._REASONS, **repeated, **self.reasons}
        early = f" The episode was ended early: {reasons.get(error, error)}." if error is not None else ""
        return f"The {self.undertaking} was {outcome}.{early} Reward: {reward:.3g}. Steps: {turns}, {limit}."

    def prompt(self, name: str, **values: object) -> str:
        """The text of ``prompts/NAME.txt`` with ``values`` in its placeholders."""
        return _template(self.package, name).substitute(values)


def check_style(label: str, style: Style, max_turns: int, known: Sequence[Style] = OUR_STYLES) -> None:
    """Raise ConfigError for an unknown style or a turn limit below 1."""
    if style not in known:
        raise ConfigError(f"{label} prompt style {style!r} is unknown; it is one of {', '.join(known)}")
    if max_turns < 1:
        raise ConfigError(f"{label} max_turns is {max_turns}; it must be at least 1")


@cache
def _template(package: str, name: str) -> Template:
    source = resources.files(f"r3l.envs.{package}").joinpath("prompts", f"{name}.txt")
    return Template(source.read_text(encoding="utf-8").rstrip("\n"))


class ReleasedWords(TaggedDialogue):
    """Mixed into a ``TaggedDialogue``: rules are that one's, words the release's (``prompts: released``).

    ``system``: its system template; ``reward``: what its code calls an episode's reward. Raises ConfigError without a
    clone of the release.
    """

    system: str
    reward = "reward"
    styles = ("released",)
    words: ReleasedPrompts

    def __init__(self, style: Style, max_turns: int | None = None, options: TaggedOptions | None = None) -> None:
        super().__init__(style, max_turns, options)
        self.words = self.release = ReleasedPrompts(self.package)
        self.words.template(self.system)  # no clone is an error now, not in the middle of a run

    def opening(self, task: Task, first: Observation) -> list[Message]:
        return [Message("system", self.words.template(self.system)), self.observed(first, [], first)]

    def following(self, first: Observation, actions: Sequence[str], now: Observation) -> Message:
        return self.observed(first, actions, now)

    def observed(self, first: Observation, actions: Sequence[str], now: Observation) -> Message:
        """The user turn, first or later."""
        raise NotImplementedError

    def closing(self, reward: float, success: bool, turns: int, error: StopReason | None, response: str = "") -> str:
        """The final feedback on an ended episode; none where the dialog outgrew the context."""
        if error is StopReason.CONTEXT:
            return ""
        if error is not None:
            return self.ended_by(error, response)
        fields = (self.reward, "self.max_env_steps", "step + 1")
        four = self.words.texts("first_rollout", *fields)  # won early, won late, lost early, lost late
        which = 2 * (reward < 1) + (turns >= self.max_turns)
        return four[which].fill(dict(zip(fields, (float(reward), self.max_turns, turns), strict=True)))

    def ended_by(self, error: StopReason, response: str) -> str:
        """The feedback on a response that ended the episode."""
        fields = ("action",) if error is StopReason.REPETITION else ()
        text, *_ = self.words.texts("first_rollout", *fields, used="feedback")
        return text.fill({"action": action_in(response)})


def action_in(response: str) -> str:
    """The first action of a response, as the release names it in its feedback."""
    return (first_between(response, "action") or "").strip()
