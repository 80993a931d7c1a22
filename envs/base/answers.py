"""Problems with one final answer (mathematics, puzzles): answer extraction, engine and dialogue.

A turn is one line of the response (``turns: segments``) or all of it (``turns: whole``). With lines, a
retry from a pivot keeps the tokens of the lines before it and continues the same response; no message comes
between two lines.

Two rules extract an answer, and results report both. ``strict`` accepts only the requested form: the last
``\\boxed{...}``, else the last ``<answer>...</answer>``, after the thought. ``flexible`` also accepts the
other common ways of stating an answer, and as a last resort the last number.
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
from r3l.released.prompts import ReleasedPrompts

Rule = Literal["strict", "flexible"]
WRONG = "That answer is not correct. Try again."  # with attempts left

_BOXED = re.compile(r"\\(?:boxed|fbox)\s*\{")
_BOXED_ALONE = re.compile(
    r"\\(?:boxed|fbox)(?![A-Za-z])\s*+(?=\S?\s|\S?\$|\S?\Z|\\|[^\s\d$]{0,2}\d)([^\s${}][^\s$]*)",
)
_BRACE = re.compile(r"\\.|([{}])", re.DOTALL)  # an escaped brace is a character, not a bracket
_THOUGHTS = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
# A tag that is quoted in a sentence ends no thought.
_MENTIONED = re.compile(r"[\s`\"'(]</think>[`\"']?[ \t]*[a-z,.;:)]")


class AnswerOptions(Options):
    """Settings of environments whose problems have one final answer."""

    attempts: int = option(
        1,
        "answers before the episode ends",
        "our choice: one (released code: 3, B-26)",
        ge=1,
    )
    turns: Literal["segments", "whole"] = option(
        "segments",
        "unit that a pivot can point at: a line of the response, or all of it",
        "our choice (released code: whole)",
    )
    format_penalty: float = option(
        0.0,
        "subtracted from the reward of a response without an answer",
        "our choice: none (RLTF: 0.1)",
        ge=0,
    )


def extract(response: str, rule: Rule) -> str | None:
    r"""The answer in ``response``, without its box; None if there is none or it is empty.

    ``rule``: ``strict`` accepts only the last ``\boxed{...}``, else the last ``<answer>...</answer>``;
    ``flexible`` also a sentence that states the answer, else the last number. Thoughts are left out, so a
    response that was cut off inside its thought has no answer.
    """
    # A box or answer tags, preferably after the thought.
    found = split_thought(response)
    after = found.after or ""
    texts = [after, found.before]
    if THOUGHT not in response and _MENTIONED.search(response):
        texts.append(response)  # a sentence mentions </think>, so there may be no thought at all
    for text in texts:
        text = _THOUGHTS.sub(" ", text)
        answer = boxed(text)
        if answer is not None:
            return answer.strip() or None
        tagged = list(between(text, "answer", any_case=True))
        if tagged:
            inside = text[tagged[-1]]
            answer = boxed(inside)
            if not answer:
                answer = inside if rule == "strict" else announced(inside) or said(inside)
            return answer.strip() or None

    # A sentence that states the answer, else the last number, but never from within the thought.
    if rule == "strict":
        return None
    answer = announced(after) or last_number(after) or ""
    return answer.strip() or None


def boxed(text: str) -> str | None:
    r"""The content of the last ``\boxed{...}`` or ``\fbox{...}`` with balanced braces; None without a box.

    If no box has such braces, the word after the last ``\boxed``, as in ``\boxed 5``.
    """
    # Match braces in one pass: position after an opening brace -> position of its closing brace.
    opened: list[int] = []
    closed_at: dict[int, int] = {}
    for brace in _BRACE.finditer(text):
        if brace[1] == "{":
            opened.append(brace.end())
        elif brace[1] and opened:
            closed_at[opened.pop()] = brace.start()
    starts = (box.end() for box in _BOXED.finditer(text) if box.end() in closed_at)
    last = max(starts, default=None)
    if last is not None:
        return text[last : closed_at[last]]
    without_braces = _BOXED_ALONE.findall(text)
    return without_braces[-1].rstrip(".,;:!?") if without_braces else None


@dataclass(frozen=True)
class AnswerGrade:
    """Whether a response is correct; ``answer`` is the text extracted from it, None if there was none."""

    correct: bool
    answer: str | None


ResponseGrader = Callable[[Task, str], AnswerGrade]


class AnswerEngine:
    """An ``Environment`` that poses one problem and grades each complete response to it by ``grade``.

    Reward 1 and success for a correct answer, else 0, or minus ``format_penalty`` without an answer. An
    episode ends at a correct answer or after ``attempts`` answers.
    """

    def __init__(self, options: AnswerOptions, grade: ResponseGrader) -> None:
        self._options = options
        self._grade = grade
        self._task: Task | None = None
        self._lines: tuple[str, ...] = ()
        self._left = 0
        self._now = Observation("")

    def reset(self, task: Task) -> Observation:
        """Start ``task``; the first observation is ``problem`` of its payload."""
        self._task = task
        self._lines = ()
        self._left = self._options.attempts
        penalty = 0.0 - self._options.format_penalty  # not -penalty: -0.0 would be written to files
        self._now = Observation(str(task.payload["problem"]), invalid_action_reward=penalty)
        return self._now

    def step(self, action: str) -> Observation:
        """Take the next part of the response and grade the response once it is complete.

        With ``turns: segments`` an action is one line; a line break at its end means that more lines follow,
        and the observation is empty. Otherwise an action is the complete response. Raises EngineError before
        ``reset``.
        """
        if self._task is None:
            raise EngineError("step before a successful reset")
        self._lines = (*self._lines, action)
        penalty = 0.0 - self._options.format_penalty

        # An incomplete response has no answer yet, so an episode that ends here pays the penalty.
        if self._options.turns == "segments" and action.endswith("\n"):
            self._now = Observation("", reward=penalty, invalid_action_reward=penalty)
            return self._now

        grade = self._grade(self._task, "".join(self._lines))
        self._lines = ()
        self._left -= 1
        if grade.correct:
            self._now = Observation("", reward=1.0, done=True, success=True)
            return self._now
        no_answer = grade.answer is None
        reward = penalty if no_answer else 0.0
        self._now = Observation(
            WRONG if self._left else "",
            reward=reward,
            done=not self._left,
            invalid_action_reward=reward,
            no_answer=no_answer,
        )
        return self._now

    def snapshot(self) -> tuple[tuple[str, ...], int, Observation]:
        """The state for :meth:`restore`: (lines of the current response, attempts left, last observation)."""
        return self._lines, self._left, self._now

    def restore(self, snapshot: Any) -> Observation:
        """Return to the state of a :meth:`snapshot` of the same task; returns its observation."""
        self._lines, self._left, self._now = snapshot
        return self._now

    def close(self) -> None:
        """End the episode: a step before the next ``reset`` is an error."""
        self._task = None


@dataclass(frozen=True)
class WrongLine:
    """The first wrong line of a response.

    ``line``: its index from 0. ``cause``: what is wrong. ``correction``: what to do instead, without the
    problem's answer.
    """

    line: int
    cause: str
    correction: str


@dataclass(frozen=True)
class Subject:
    """Subject-specific parts of an ``AnswerDialogue``.

    ``system``: the instructions of the full style. ``first_wrong_line(task, lines)`` is the critic of a
    wrong response of one line or more; it returns None for a task that it cannot judge.
    """

    domain: str
    system: str
    first_wrong_line: Callable[[Task, Sequence[str]], WrongLine | None]


class AnswerDialogue:
    """The ``Dialogue`` of problems with one final answer; the attributes are explained there.

    One dialog grows (no ``history``), and every error ends a retry (``retry_tolerates`` is empty).
    ``styles``: the prompt styles that it accepts.
    """

    styles: Sequence[Style] = OUR_STYLES
    suggestion_optional = False
    release: ReleasedPrompts | None = None
    retry_tolerates: frozenset[StopReason] = frozenset()
    lenient = False
    history: int | None = None

    def __init__(self, subject: Subject, style: Style, max_turns: int, options: AnswerOptions) -> None:
        check_style(subject.domain, style, max_turns, self.styles)
        self.domain = subject.domain
        self.max_turns = max_turns
        self.style: Style = style
        self.stop: Stop = "line" if options.turns == "segments" else "end"
        self._subject = subject

    def opening(self, task: Task, first: Observation) -> list[Message]:
        """The instructions and the problem; in the compact style only the problem."""
        user = Message("user", first.text)
        return [user] if self.style == "compact" else [Message("system", self._subject.system), user]

    def following(self, first: Observation, actions: Sequence[str], now: Observation) -> Message | None:
        """The reply to a wrong answer, the text of ``now``; None if it is empty, as between two lines.

        ``first`` and ``actions`` are not used.
        """
        return Message("user", now.text) if now.text else None

    def fresh(
        self,
        task: Task,
        first: Observation,
        answers: Sequence[tuple[Observation, str, str]],
        now: Observation,
    ) -> list[Message]:
        """Raises NotImplementedError: these problems do not support ``history`` (a new prompt each turn)."""
        raise NotImplementedError

    def parse(self, response: str, now: Observation, actions: Sequence[str]) -> Parsed:
        """The response itself as the action; never an error."""
        return Parsed(response)

    def tolerated(self, error: StopReason, response: str) -> str:
        """Raises NotImplementedError: no error is tolerated in a retry (``retry_tolerates`` is empty)."""
        raise NotImplementedError

    def closing(
        self,
        reward: float,
        success: bool,
        turns: int,
        error: StopReason | None,
        response: str = "",
    ) -> str:
        """The final feedback: the answer was correct, was not, or is missing and why."""
        reasons = {
            None: "",
            StopReason.FORMAT: " It had no answer.",
        }
        ended = reasons.get(error, f" It was cut off ({error}).")
        if self.style == "compact":
            return compact_closing(success, turns)
        outcome = "correct" if success else "not correct"
        return f"The answer was {outcome}.{ended}"

    def critique(self, transcript: Transcript) -> Critique | None:
        """The critic's judgement, whose pivot is the first wrong line; None if it cannot judge the task."""
        if transcript.success:
            return Critique(Outcome.SUCCESS, "solved", "no wrong line")
        wrong = self._subject.first_wrong_line(transcript.task, [line for line, _ in transcript.answers])
        if wrong is None:
            return None
        summary = f"line {wrong.line} is wrong"
        return Critique(Outcome.FAILURE, summary, wrong.cause, wrong.correction, wrong.line)


def compact_closing(success: bool, turns: int) -> str:
    """The final feedback of the compact style: ``correct. 3 lines.`` or ``not correct. 3 lines.``."""
    outcome = "correct" if success else "not correct"  # the words that base checkpoints were trained on
    return f"{outcome}. {turns} lines."
