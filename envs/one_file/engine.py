"""The engine of an environment in one file: a game that starts anew and takes actions."""

from __future__ import annotations

from abc import ABC, abstractmethod

from r3l.core.environment import Observation
from r3l.core.task import Task


class OneFileEngine(ABC):
    """An ``Environment`` that is restarted at a pivot by playing its actions again, so it must be deterministic."""

    @abstractmethod
    def reset(self, task: Task) -> Observation:
        """Start ``task``, whose payload is what ``OneFileEnvironment.problem`` drew."""

    @abstractmethod
    def step(self, action: str) -> Observation:
        """Apply one action, of those that the last observation admits where it lists any."""

    def snapshot(self) -> object | None:
        """None: actions are played again."""
        return None

    def restore(self, snapshot: object) -> Observation:
        """Never called: there are no snapshots."""
        raise NotImplementedError

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """Release what is held."""
