"""Base of dialogues with one thought and one action in tags, shared by environments with actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from functools import cache
from importlib import resources
from string import Template
from typing import Literal, TypeVar

from r3l.envs.base.action_parsers import ActionParser, action_in, each_tag_once
from r3l.envs.base.package import Options

from r3l.core.environment import Observation, Parsed, Stop, StopReason, Style
from r3l.core.errors import ConfigError
from r3l.core.option import option
from r3l.core.task import Task
from r3l.core.text import THOUGHT, Message
from r3l.released.prompts import ReleasedPrompts

REPEATS = 3  # identical actions in a row that end an episode (audit 3.1)
OUR_STYLES: tuple[Style, ...] = ("full", "compact")  # every environment has both

ResponseFormat = Literal["strict", "flexible", "released", "first", "opened", "labelled", "last_label"]


def repeats(actions: Sequence[str], action: str, times: int) -> bool:
    """Whether ``action`` after ``actions`` would be the ``times``-th identical one in a row.

    Always False if ``times`` is 0 or 1.
    """
    return times > 1 and len(actions) >= times - 1 and set(actions[-(times - 1) :]) == {action}


class TaggedOptions(Options):
    """Settings shared by environments with tagged responses; ``response_format`` selects the action parser.

    Protocols (configs/protocols) set them; the source of each default is given with it.
    """

    response_format: ResponseFormat = option(
        "strict",
        "how a response is parsed (B-42); flexible: also without a thought; first: as verl-agent; opened: as "
        "Trinity-RFT; labelled: as AgentBench; last_label: as AgentGym",
        "our choice: one parser in training and evaluation",
    )
    unreadable: Literal["ends", "turn"] = option(
        "ends",
        "effect of a response without an action: it ends the episode, or counts as a turn in which the "
        "environment receives the response unchanged",
        "released code: it ends a first attempt (audit 3.1)",
    )
    repetitions: int = option(
        REPEATS,
        "identical actions in a row that end an episode; 0: no limit",
        "released code (audit 3.1)",
        ge=0,
    )
    history: int | None = option(
        None,
        "number of earlier observations and actions in a fresh prompt each turn; none: one growing dialog",
        "released code: the dialog (audit 3.2)",
        ge=0,
    )


OptionsT = TypeVar("OptionsT", bound=TaggedOptions)


def check_released(env: str, options: OptionsT, followed: Set[str]) -> OptionsT:
    """Return ``options`` if the prompts of the paper's released code can follow them, else raise ConfigError.

    All settings except ``response_format`` and the ones named in ``followed`` must have their defaults.
    """
    own = options.model_dump(exclude_defaults=True, exclude={"response_format", *followed})
    if own:
        raise ConfigError(
            f"{env}: prompts 'released' has the release's own rules, not {', '.join(own)}; set prompts=full"
        )
    return options


class TaggedDialogue:
    """Base of a ``Dialogue`` whose responses hold one thought and one action in tags. Stateless.

    A subclass defines ``label`` (the environment's name in messages), ``domain`` (named in prompts),
    ``action_parsers`` by response format, and in ``reasons`` the wording of its own stop reasons. Its prompts
    are files of ``envs/<package>/prompts``.

    ``max_turns`` counts actions; by default it is ``released_turns``, the released code's limit. Raises
    ConfigError for an unknown style, a turn limit below 1, or a ``response_format`` without a parser.
    """

    stop: Stop = "end"
    package: str
    label: str
    domain: str
    released_turns: int  # the released code's limit (audit 3.1)
    action_parsers: Mapping[ResponseFormat, ActionParser] = {"strict": each_tag_once}
    retry_tolerates: frozenset[StopReason] = frozenset()
    options_type: type[TaggedOptions] = TaggedOptions
    options: TaggedOptions
    undertaking = "task"
    suggestion_optional = False
    styles = OUR_STYLES
    release: ReleasedPrompts | None = None
    reasons: Mapping[StopReason, str] = {}
    _REASONS: Mapping[StopReason, str] = {
        StopReason.FORMAT: "a response did not hold exactly one <think>...</think> and one "
        + "<action>...</action>",
        StopReason.INADMISSIBLE: "an action was not one of the admissible actions",
        StopReason.TRUNCATED: "a response was longer than allowed and was cut off",
        StopReason.CONTEXT: "the dialog outgrew the model's context",
    }

    def __init__(
        self,
        style: Style,
        max_turns: int | None = None,
        options: TaggedOptions | None = None,
    ) -> None:
        max_turns = self.released_turns if max_turns is None else max_turns
        check_style(self.label, style, max_turns, self.styles)
        self.style = style
        self.max_turns = max_turns
        self.options = options or self.options_type()
        self.lenient = self.options.unreadable == "turn"
        self.history = self.options.history
        response_format = self.options.response_format
        if response_format not in self.action_parsers:
            known = ", ".join(self.action_parsers)
            raise ConfigError(f"{self.label} has no response_format {response_format!r}; it has {known}")

    def read(self, response: str) -> str | None:
        """The action in a response by the parser of ``response_format``; None if it has none."""
        # In the compact style no chat template opens the thought: its models were trained to write both tags.
        if self.style == "compact" and THOUGHT not in response:
            return None
        return self.action_parsers[self.options.response_format](response)

    def action(self, response: str) -> str | None:
        """The action in a response; with ``unreadable: turn``, the complete response if it has none."""
        found = self.read(response)
        return response.strip() if found is None and self.lenient else found

    def parse(self, response: str, now: Observation, actions: Sequence[str]) -> Parsed:
        """The action of a response, or the reason why the response ends the episode."""
        action = self.action(response)
        if action is None:
            return Parsed(None, StopReason.FORMAT)
        repeated = repeats(actions, action, self.options.repetitions) and not self.may_repeat(action)
        return Parsed(None, StopReason.REPETITION) if repeated else Parsed(action)

    def tolerated(self, error: StopReason, response: str) -> str:
        """The observation after an ``error`` that does not end a retry: ``Not possible (ERROR).``."""
        return f"Not possible ({error})."

    def may_repeat(self, action: str) -> bool:
        """Whether ``action`` is exempt from the rule against repetitions; by default False."""
        return False

    def fresh(
        self,
        task: Task,
        first: Observation,
        answers: Sequence[tuple[Observation, str, str]],
        now: Observation,
    ) -> list[Message]:
        """The complete prompt of the next response; only subclasses that support ``history`` implement it."""
        raise NotImplementedError

    def names(self, action: str) -> list[str]:
        """Names in an action, which a policy copies from observations; by default all words but the first.

        `r3l probe` measures how often all of them were shown before.
        """
        return action.split()[1:]

    def possible(self, action: str, now: Observation) -> bool:
        """Whether an action can be taken now; True if the environment lists no admissible actions."""
        return not now.admissible or action in now.admissible

    def closing(
        self,
        reward: float,
        success: bool,
        turns: int,
        error: StopReason | None,
        response: str = "",
    ) -> str:
        """The final feedback on a finished episode: outcome, reason of an early end, reward, steps."""
        # A rollout stops at the limit, so an episode that uses it up without success counts as exceeding it.
        exceeded = turns > self.max_turns or (turns == self.max_turns and not success and error is None)
        kept = "exceeded" if exceeded else "within"
        limit = f"{kept} the limit of {self.max_turns}"
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
        """The text of ``envs/<package>/prompts/<name>.txt`` with its placeholders filled by ``values``.

        Raises KeyError if a placeholder has no value.
        """
        return _template(self.package, name).substitute(values)


def check_style(label: str, style: Style, max_turns: int, known: Sequence[Style] = OUR_STYLES) -> None:
    """Raise ConfigError if ``style`` is not in ``known`` or ``max_turns`` is below 1.

    ``label``: the environment, for the message.
    """
    if style not in known:
        raise ConfigError(f"{label} prompt style {style!r} is unknown; it is one of {', '.join(known)}")
    if max_turns < 1:
        raise ConfigError(f"{label} max_turns is {max_turns}; it must be at least 1")


@cache
def _template(package: str, name: str) -> Template:
    source = resources.files(f"r3l.envs.{package}").joinpath("prompts", f"{name}.txt")
    return Template(source.read_text(encoding="utf-8").rstrip("\n"))


class ReleasedDialogue(TaggedDialogue):
    """Mixin for a ``TaggedDialogue``: its rules, with the prompts of the paper's released code.

    Used with ``prompts: released``. A subclass sets ``system``, the name of the released system template, and
    may replace ``reward``, the name of the variable that holds the reward in the released code. Raises
    ConfigError without a clone of that code.
    """

    system: str
    reward = "reward"
    styles = ("released",)
    words: ReleasedPrompts

    def __init__(
        self,
        style: Style,
        max_turns: int | None = None,
        options: TaggedOptions | None = None,
    ) -> None:
        super().__init__(style, max_turns, options)
        self.words = ReleasedPrompts(self.package)
        self.release = self.words
        self.words.template(self.system)  # a missing clone must fail here, not in the middle of a run

    def opening(self, task: Task, first: Observation) -> list[Message]:
        """The released system message, and the first observation as a user message."""
        return [Message("system", self.words.template(self.system)), self.observed(first, [], first)]

    def following(self, first: Observation, actions: Sequence[str], now: Observation) -> Message:
        return self.observed(first, actions, now)

    def observed(self, first: Observation, actions: Sequence[str], now: Observation) -> Message:
        """The user message that shows the observation ``now``, first or later; a subclass defines it."""
        raise NotImplementedError

    def closing(
        self,
        reward: float,
        success: bool,
        turns: int,
        error: StopReason | None,
        response: str = "",
    ) -> str:
        """The released feedback on a finished episode, for the prompt of a reflection.

        Empty if the context was full.
        """
        if error is StopReason.CONTEXT:
            return ""
        if error is not None:
            return self.ended_by(error, response)
        fields = (self.reward, "self.max_env_steps", "step + 1")
        # The release has four texts, in this order: won early, won late, lost early, lost late.
        texts = self.words.texts("first_rollout", *fields)
        which = 0 if reward >= 1 else 2
        if turns >= self.max_turns:
            which += 1
        return texts[which].fill(dict(zip(fields, (float(reward), self.max_turns, turns), strict=True)))

    def ended_by(self, error: StopReason, response: str) -> str:
        """The feedback of the paper's released code on a response that ended the episode by breaking a rule.

        For StopReason.REPETITION it quotes the action in ``response``; for any other error it is always the
        same text.
        """
        fields = ("action",) if error is StopReason.REPETITION else ()
        text, *_ = self.words.texts("first_rollout", *fields, used="feedback")
        return text.fill({"action": action_in(response)})
