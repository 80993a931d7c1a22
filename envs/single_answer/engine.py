"""The engine of problems that end with one answer.

A turn is a line of the response (``turns: segments``) or the whole of it. With lines, a retry from a pivot keeps the
lines before it, to the token, and continues the very response; nothing is said between two lines.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from r3l.envs.single_answer.options import AnswerOptions

from r3l.core.environment import Observation
from r3l.core.errors import EngineError
from r3l.core.task import Task

WRONG = "That answer is not correct. Try again."  # with attempts left


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
        lost = 0.0 - self._options.format_penalty if grade.answer is None else 0.0
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
