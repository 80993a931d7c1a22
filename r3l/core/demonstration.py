"""Demonstration: a scripted episode with its critique and a guided retry, for SFT examples."""

from __future__ import annotations

from dataclasses import dataclass

from r3l.core.environment import Critique, Observation, StopReason
from r3l.core.task import Task


@dataclass(frozen=True)
class Step:
    """One turn: the observation ``now``, the response in the environment's format, and the action in it.

    ``imitate`` is False for an invalid action, which is there to be criticised. ``suggested``: a critique
    suggested the action. ``planned``: the same response with a thought that names the action; empty if the
    environment has no thoughts.
    """

    now: Observation
    response: str
    action: str
    imitate: bool = True
    suggested: bool = False
    planned: str = ""


@dataclass(frozen=True)
class Demonstration:
    """One scripted episode and its critique.

    ``error``: why an invalid action ended the episode (see Dialogue.parse), else None. ``retry``: the steps
    from the critique's turn on, played under its suggestion; empty if the critique names no turn.
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
