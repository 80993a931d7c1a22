"""Demonstration: a scripted episode with its critique and a guided retry, as material for supervised training."""

from __future__ import annotations

from dataclasses import dataclass

from r3l.core.environment import Critique, Observation, StopReason
from r3l.core.task import Task


@dataclass(frozen=True)
class Step:
    """What was seen, what was answered (in the environment's response format), and the action in it.

    ``imitate`` is False for an invalid action that only serves to be criticised. ``suggested``: the action was
    suggested to the agent. ``planned``: the answer of an agent that says the action in its thought; empty where
    the environment has no thoughts.
    """

    now: Observation
    response: str
    action: str
    imitate: bool = True
    suggested: bool = False
    planned: str = ""


@dataclass(frozen=True)
class Demonstration:
    """One scripted episode and the critique of it.

    ``error`` is why an invalid action ended it (see Dialogue.parse), else None. ``retry`` holds the steps from the
    critique's turn on, played under its suggestion; empty where it names none.
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
