"""What the text sides of the agentic environments share: styles, a turn limit, the closing words, prompt files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from string import Template

from r3l.envs.tagged_text.options import ResponseFormat
from r3l.envs.tagged_text.responses import REPEATS, Reader

from r3l.core.environment import Observation, Stop, StopReason, Style
from r3l.core.errors import ConfigError
from r3l.original.prompts import ReleasedPrompts

OUR_STYLES: tuple[Style, ...] = ("full", "compact")  # which every environment has


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
    readers: Mapping[ResponseFormat, Reader]
    retry_tolerates: frozenset[StopReason] = frozenset()
    undertaking = "task"
    suggestion_optional = False
    styles = OUR_STYLES
    release: ReleasedPrompts | None = None
    reasons: Mapping[StopReason, str] = {}
    _REASONS: Mapping[StopReason, str] = {
        StopReason.FORMAT: "a response did not hold exactly one <think>...</think> and one <action>...</action>",
        StopReason.REPETITION: f"the same action was given {REPEATS} times in a row",
        StopReason.TRUNCATED: "a response was longer than allowed and was cut off",
        StopReason.CONTEXT: "the dialog outgrew the model's context",
    }

    def __init__(self, style: Style, max_turns: int | None = None, response_format: ResponseFormat = "strict") -> None:
        max_turns = self.released_turns if max_turns is None else max_turns
        check_style(self.label, style, max_turns, self.styles)
        self.style = style
        self.max_turns = max_turns
        self.response_format = response_format

    def read(self, response: str) -> str | None:
        """The action of a response, None where it has none; see ``tagged_text.responses``."""
        return self.readers[self.response_format](response)

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
        reasons = {**self._REASONS, **self.reasons}
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
