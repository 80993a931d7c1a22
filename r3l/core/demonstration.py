"""Demonstration: a scripted episode, its critique and a retry, of which SFT examples are made."""

from __future__ import annotations

from dataclasses import dataclass

from r3l.core.environment import Critique, Observation, StopReason
from r3l.core.task import Task


@dataclass(frozen=True)
class Step:
    """One scripted turn: the observation ``now``, the response in the environment's format, the action in it.

    ``imitate``: whether SFT trains on the response; False for an action that is invalid or meant to be, which
    is only shown. ``suggested``: the action is the next one that a critique suggested. ``planned``: the same
    action after a thought that names it, as a complete response.
    """

    now: Observation
    response: str
    action: str
    imitate: bool = True
    suggested: bool = False
    planned: str = ""


@dataclass(frozen=True)
class Demonstration:
    """A scripted episode, the critique of it, and a scripted retry.

    ``first``: first observation; ``reward``, ``success``: result of the episode ``steps``. ``error``: the
    rule that an invalid action broke, which ended the episode (Dialogue.parse), else None. ``retry``: the
    steps from the critique's turn on, played under its suggestion; empty, with ``retry_success`` False, if
    the critique names no turn.
    """

    task: Task
    first: Observation
    steps: tuple[Step, ...]
    reward: float
    success: bool
    error: StopReason | None
    critique: Critique
    retry: tuple[Step, ...]
    retry_success: bool
