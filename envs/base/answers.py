"""Problems that end with one answer: how it is read, the engine, the dialogue. Shared by mathematics and puzzles.

A turn is a line of the response (``turns: segments``) or the whole of it. With lines, a retry from a pivot keeps the
lines before it, to the token, and continues the very response; nothing is said between two lines.

An answer is read by one of two rules, which are reported side by side. ``strict`` takes what the prompt asked for and
nothing else: the last ``\\boxed{...}``, else the last ``<answer>...</answer>``, after the thinking. ``flexible`` also
takes the usual other ways of saying an answer, and at last the last number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from r3l.envs.base.action_parsers import between
from r3l.envs.base.package import Options
from r3l.envs.base.said_answers import announced, last_number, said
from r3l.envs.base.tagged import OUR_STYLES, check_style

from r3l.core.environment import Critique, Observation, Outcome, Parsed, Stop, StopReason, Style, Transcript
from r3l.core.errors import EngineError
from r3l.core.option import option
from r3l.core.task import Task
from r3l.core.text import THOUGHT, Message, split_thought
from r3l.original.prompts import ReleasedPrompts

Rule = Literal["strict", "flexible"]
WRONG = "That answer is not correct. Try again."  # with attempts left

_BOXED = re.compile(r"\\(?:boxed|fbox)\s*\{")
_BOXED_ALONE = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])\s*+(?=\S?\s|\S?\$|\S?\Z|\\|[^\s\d$]{0,2}\d)([^\s${}][^\s$]*)")
_BRACE = re.compile(r"\\.|([{}])", re.DOTALL)  # a backslash before it makes it a character, a line break does not
_THOUGHTS = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
_MENTIONED = re.compile(r"[\s`\"'(]</think>[`\"']?[ \t]*[a-z,.;:)]")  # in a sentence, which no end of a thought is


class AnswerOptions(Options):
    """Settings of the environment."""

    attempts: int = option(1, "answers before the episode ends", "our choice: one (released code: 3, B-26)", ge=1)
    turns: Literal["segments", "whole"] = option(
        "segments", "what a pivot can point at: a line of a response, or all of it", "our choice (released code: whole)"
    )
    format_penalty: float = option(0.0, "lost by a response without an answer", "our choice: none (RLTF: 0.1)", ge=0)


def extract(response: str, rule: Rule) -> str | None:
    """The answer that ``response`` gives, without its box; None where the rule finds none.

    A response that was cut off inside its thought gives none. Words about the tags of a thought are no thought.
    """
    found = split_thought(response)
    texts = [found.after or "", found.before]
    if THOUGHT not in response and _MENTIONED.search(response):
        texts.append(response)
    for text in texts:
        text = _THOUGHTS.sub(" ", text)
        answer = boxed(text)
        if answer is None and (tagged := list(between(text, "answer", any_case=True))):
            inside = text[tagged[-1]]
            answer = boxed(inside)
            if not answer:
                answer = inside if rule == "strict" else announced(inside) or said(inside)
        if answer is not None:
            return answer.strip() or None
    if rule == "strict":
        return None
    answer = announced(found.after or "") or last_number(found.after or "")
    return (answer or "").strip() or None


def boxed(text: str) -> str | None:
    """What stands in the last box with balanced braces, else after the last box without any; None without either."""
    closed_at = _pairs(text)
    starts = (box.end() for box in _BOXED.finditer(text) if box.end() in closed_at)
    last = max(starts, default=None)
    if last is not None:
        return text[last : closed_at[last]]
    alone = _BOXED_ALONE.findall(text)
    return alone[-1].rstrip(".,;:!?") if alone else None


def _pairs(text: str) -> dict[int, int]:
    """Where the brace ends that is opened before a place; braces that have no other are left out."""
    opened: list[int] = []
    closed_at: dict[int, int] = {}
    for brace in _BRACE.finditer(text):
        if brace[1] == "{":
            opened.append(brace.end())
        elif brace[1] and opened:
            closed_at[opened.pop()] = brace.start()
    return closed_at


@dataclass(frozen=True)
class AnswerGrade:
    """``answer``: what was read as the answer, None where nothing was."""

    correct: bool
    answer: str | None


ResponseGrader = Callable[[Task, str], AnswerGrade]


class AnswerEngine:
    """One problem (an ``Environment``). ``grade`` reads the answer in a whole response and compares it."""

    def __init__(self, options: AnswerOptions, grade: ResponseGrader) -> None:
        self._options, self._grade = options, grade
        self._task: Task | None = None
        self._lines: tuple[str, ...] = ()
        self._left = 0
        self._now = Observation("")

    def reset(self, task: Task) -> Observation:
        """Start ``task``, whose payload has ``problem``."""
        self._task, self._lines, self._left = task, (), self._options.attempts
        self._now = Observation(str(task.payload["problem"]), invalid_action_reward=0.0 - self._options.format_penalty)
        return self._now

    def step(self, action: str) -> Observation:
        """A line of the response, or all of it. A line that ends with a line break is not the last one."""
        if self._task is None:
            raise EngineError("step before a successful reset")
        self._lines = (*self._lines, action)
        lost = 0.0 - self._options.format_penalty  # no negative zero
        if self._options.turns == "segments" and action.endswith("\n"):
            self._now = Observation("", reward=lost, invalid_action_reward=lost)
        else:
            self._now = self._graded(self._grade(self._task, "".join(self._lines)))
        return self._now

    def _graded(self, grade: AnswerGrade) -> Observation:
        self._lines, self._left = (), self._left - 1
        if grade.correct:
            return Observation("", reward=1.0, done=True, success=True)
        no_answer = grade.answer is None
        lost = 0.0 - self._options.format_penalty if no_answer else 0.0
        text, done = WRONG if self._left else "", not self._left
        return Observation(text, reward=lost, done=done, invalid_action_reward=lost, no_answer=no_answer)

    def snapshot(self) -> tuple[tuple[str, ...], int, Observation]:
        """The lines of the present response, the attempts left, what was said last."""
        return self._lines, self._left, self._now

    def restore(self, snapshot: Any) -> Observation:
        self._lines, self._left, self._now = snapshot
        return self._now

    def close(self) -> None:
        self._task = None


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
    lenient = False
    history: int | None = None

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

    def fresh(
        self, task: Task, first: Observation, answers: Sequence[tuple[Observation, str, str]], now: Observation
    ) -> list[Message]:
        """Never asked for: an answer has no history."""
        raise NotImplementedError

    def parse(self, response: str, now: Observation, actions: Sequence[str]) -> Parsed:
        return Parsed(response)

    def closing(self, reward: float, success: bool, turns: int, error: StopReason | None, response: str = "") -> str:
        """Whether the answer was right, or why there was none."""
        known = {None: "", StopReason.MAX_TURNS: " It had too many lines.", StopReason.FORMAT: " It had no answer."}
        ended = known.get(error, f" It was cut off ({error}).")
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
    """The final feedback as base checkpoints were taught it."""
    return f"{'correct' if success else 'not correct'}. {turns} lines."
