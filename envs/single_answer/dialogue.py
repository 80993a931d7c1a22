"""The text side of problems that end with one answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from r3l.envs.single_answer.options import AnswerOptions
from r3l.envs.tagged_text.dialogue import OUR_STYLES, check_style

from r3l.core.environment import Critique, Observation, Outcome, Parsed, Stop, StopReason, Style, Transcript
from r3l.core.task import Task
from r3l.core.text import Message
from r3l.original.prompts import ReleasedPrompts

RELEASED_LINES = 200  # our choice: more lines than 4,096 tokens hold (the released code knows no lines)


@dataclass(frozen=True)
class WrongLine:
    """The first line that is wrong (0-based), why, and what to do there instead; never the problem's answer."""

    line: int
    cause: str
    correction: str


@dataclass(frozen=True)
class Subject:
    """What the problems of one subject bring.

    ``system``: the instructions of the full style. ``first_wrong_line``: of a task and the lines of a wrong
    response; None where there is no critic for the task.
    """

    domain: str
    system: str
    first_wrong_line: Callable[[Task, Sequence[str]], WrongLine | None]


class AnswerDialogue:
    """The text side (a ``Dialogue``)."""

    styles: Sequence[Style] = OUR_STYLES
    suggestion_optional = False
    release: ReleasedPrompts | None = None
    retry_tolerates: frozenset[StopReason] = frozenset()

    def __init__(self, subject: Subject, style: Style, max_turns: int, options: AnswerOptions) -> None:
        check_style(subject.domain, style, max_turns, self.styles)
        self.domain, self.max_turns = subject.domain, max_turns
        self.style: Style = style
        self.stop: Stop = "line" if options.turns == "segments" else "end"
        self._subject = subject

    def opening(self, task: Task, first: Observation) -> list[Message]:
        """The instructions and the problem; in the compact style the problem alone."""
        user = Message("user", first.text)
        return [user] if self.style == "compact" else [Message("system", self._subject.system), user]

    def following(self, first: Observation, actions: Sequence[str], now: Observation) -> Message | None:
        """What is said to a wrong answer; nothing between two lines."""
        return Message("user", now.text) if now.text else None

    def parse(self, response: str, now: Observation, actions: Sequence[str]) -> Parsed:
        """Whatever was written."""
        return Parsed(response)

    def closing(self, reward: float, success: bool, turns: int, error: StopReason | None, response: str = "") -> str:
        """Whether the answer was right, or why there was none."""
        ended = {None: "", StopReason.MAX_TURNS: " It had too many lines."}.get(error, f" It was cut off ({error}).")
        if self.style == "compact":
            return compact_closing(success, turns)
        return f"The answer was {'correct' if success else 'not correct'}.{ended}"

    def critique(self, transcript: Transcript) -> Critique | None:
        """The first wrong line; None where there is no critic for the task."""
        if transcript.success:
            return Critique(Outcome.SUCCESS, "solved", "no wrong line")
        wrong = self._subject.first_wrong_line(transcript.task, [line for line, _ in transcript.answers])
        if wrong is None:
            return None
        return Critique(Outcome.FAILURE, f"line {wrong.line} is wrong", wrong.cause, wrong.correction, wrong.line)


def compact_closing(success: bool, turns: int) -> str:
    """The final feedback as start models were taught it."""
    return f"{'correct' if success else 'not correct'}. {turns} lines."
