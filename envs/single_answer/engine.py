"""Problems that end with one answer: the engine and the text side that mathematics and puzzles share.

A turn is a line of the response (``turns: segments``) or the whole of it. With lines, a retry from a pivot keeps the
lines before it, to the token, and continues the very response; nothing is said between two lines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from r3l.core.environment import Critique, Message, Observation, Outcome, Parsed, Stop, Transcript
from r3l.core.errors import EngineError
from r3l.core.task import Task
from r3l.envs.base.options import Options
from r3l.envs.tagged_text.dialogue import check_style

WRONG = "That answer is not correct. Try again."  # with attempts left
RELEASED_LINES = 200  # our choice: more lines than 4,096 tokens hold (the released code knows no lines)


class AnswerOptions(Options):
    """Settings of the environment."""

    attempts: int = Field(default=1, ge=1, description="answers before the episode ends (released code: 3)")
    turns: Literal["segments", "whole"] = Field(default="segments", description="what a pivot can point at")
    format_penalty: float = Field(default=0.0, ge=0, description="lost by a response without an answer (RLTF: 0.1)")


@dataclass(frozen=True)
class Judgement:
    """``answer``: what was read as the answer, None where nothing was."""

    correct: bool
    answer: str | None


Judge = Callable[[Task, str], Judgement]


class AnswerEngine:
    """One problem (an ``Environment``). ``judge`` reads the answer in a whole response and compares it."""

    def __init__(self, options: AnswerOptions, judge: Judge) -> None:
        self._options, self._judge = options, judge
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
            self._now = self._judged(self._judge(self._task, "".join(self._lines)))
        return self._now

    def _judged(self, judgement: Judgement) -> Observation:
        self._lines, self._left = (), self._left - 1
        if judgement.correct:
            return Observation("", reward=1.0, done=True, success=True)
        lost = 0.0 - self._options.format_penalty if judgement.answer is None else 0.0
        return Observation(WRONG if self._left else "", reward=lost, done=not self._left, invalid_action_reward=lost)

    def snapshot(self) -> tuple[tuple[str, ...], int, Observation]:
        """The lines of the present response, the attempts left, what was said last."""
        return self._lines, self._left, self._now

    def restore(self, snapshot: Any) -> Observation:
        """Back to ``snapshot``."""
        self._lines, self._left, self._now = snapshot
        return self._now

    def close(self) -> None:
        """Nothing is held."""
        self._task = None


@dataclass(frozen=True)
class Flaw:
    """The first line that is wrong (0-based), why, and what to do there instead; never the problem's answer."""

    line: int
    cause: str
    better: str


Critic = Callable[[Task, Sequence[str]], Flaw | None]


class AnswerDialogue:
    """The text side (a ``Dialogue``). ``system``: instructions of the released style; ``critic``: finds the flaw."""

    def __init__(
        self,
        domain: str,
        system: str,
        style: str,
        max_turns: int,
        options: AnswerOptions,
        critic: Critic = lambda task, lines: None,
    ) -> None:
        check_style(domain, style, max_turns)
        self.domain, self.style, self.max_turns = domain, style, max_turns
        self.stop: Stop = "line" if options.turns == "segments" else "end"
        self._system, self._critic = system, critic

    def opening(self, task: Task, first: Observation) -> list[Message]:
        """The instructions and the problem; in the compact style the problem alone."""
        user = Message("user", first.text)
        return [user] if self.style == "compact" else [Message("system", self._system), user]

    def following(self, first: Observation, actions: Sequence[str], now: Observation) -> Message | None:
        """What is said to a wrong answer; nothing between two lines."""
        return Message("user", now.text) if now.text else None

    def parse(self, response: str, now: Observation, actions: Sequence[str]) -> Parsed:
        """Whatever was written."""
        return Parsed(response)

    def closing(self, reward: float, success: bool, turns: int, error: str | None) -> str:
        """Whether the answer was right, or why there was none."""
        ended = {None: "", "max_turns": " It had too many lines."}.get(error, f" It was cut off ({error}).")
        if self.style == "compact":
            return f"{'correct' if success else 'not correct'}. {turns} lines."
        return f"The answer was {'correct' if success else 'not correct'}.{ended}"

    def critique(self, transcript: Transcript) -> Critique | None:
        """The first wrong line, as the critic of the problems finds it; None where it finds none."""
        if transcript.success:
            return Critique(Outcome.SUCCESS, "solved", "no wrong line")
        flaw = self._critic(transcript.task, [line for line, _ in transcript.answers])
        if flaw is None:
            return None
        return Critique(Outcome.FAILURE, f"line {flaw.line} is wrong", flaw.cause, flaw.better, flaw.line)
