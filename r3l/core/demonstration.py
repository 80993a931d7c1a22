"""Demonstration: a scripted episode with its review and a guided second try, as material for a warm start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from r3l.core.environment import Observation
from r3l.core.task import Task


@dataclass(frozen=True)
class Step:
    """What was seen, what was answered (in the environment's response format), and the action in it.

    ``imitate`` is False for a blunder that only serves to be reviewed.
    """

    now: Observation
    response: str
    action: str
    imitate: bool = True


@dataclass(frozen=True)
class Demonstration:
    """One scripted episode. ``review`` is the JSON object of a reflection on it (see r3l.reflection).

    ``error`` is why a blunder ended it (see Dialogue.parse), else None. ``retry`` holds the steps from the
    review's pivot on, played under its suggestion; empty without a pivot.
    """

    task: Task
    first: Observation
    steps: tuple[Step, ...]
    reward: float
    success: bool
    error: str | None
    review: Mapping[str, Any]
    retry: tuple[Step, ...]
    retry_success: bool
