"""The worker's side of an environment pool: engines live here and answer calls that come through a pipe.

A worker keeps closed engines for reuse (starting one costs more than resetting one) and remembers every
observation and snapshot of the trajectory in play, so that a pivot can be restored and checked.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any, Literal

from r3l.core.environment import Environment, EnvironmentFactory, Observation
from r3l.core.errors import EngineError, EngineLost, R3LError, ReplayMismatch
from r3l.core.task import Task
from r3l.core.validation import checked_observation

Verb = Literal["reset", "step", "rewind", "close"]


class WorkerLost(EngineLost):
    """A worker process died or hung, and all its environments with it."""


class RecordedEnvironment:
    """An engine plus the record of its trajectory: the worker-side half of a handle.

    The record is that of the trajectory played from the start: after a rewind nothing is added to it, so that any
    number of retries can start from its turns.
    """

    def __init__(self, engine: Environment, env: str = "") -> None:
        self.engine, self._env = engine, env or type(engine).__qualname__
        self._task: Task | None = None
        self._actions: list[str] = []
        self._seen: list[tuple[Observation, Any]] = []
        self._recording = False

    def reset(self, task: Task) -> Observation:
        self._task, self._actions, self._seen, self._recording = task, [], [], True
        return self._record(self._reset(task))

    def step(self, action: str) -> Observation:
        """One action, recorded unless it follows a rewind."""
        now = self._step(action)
        if self._recording:
            self._actions.append(action)
            self._record(now)
        return now

    def rewind(self, turn: int) -> Observation:
        """Back to the state after ``turn`` recorded actions: by snapshot, else by replay; checked either way."""
        self._recording = False
        recorded, snapshot = self._seen[turn]
        if snapshot is not None:
            now = checked_observation(self._env, "restore", self.engine.restore(snapshot))
        else:
            now = self._replay(self._actions[:turn])
        if (now.text, now.admissible) != (recorded.text, recorded.admissible):
            raise ReplayMismatch(
                f"task {self._task.id if self._task else '?'}, turn {turn}: the restored observation "
                f"{now.text!r} differs from the recorded {recorded.text!r}; the engine is not deterministic"
            )
        return now

    def _replay(self, actions: list[str]) -> Observation:
        assert self._task is not None
        now = self._reset(self._task)
        for action in actions:
            now = self._step(action)
        return now

    def _reset(self, task: Task) -> Observation:
        return checked_observation(self._env, "reset", self.engine.reset(task))

    def _step(self, action: str) -> Observation:
        return checked_observation(self._env, "step", self.engine.step(action))

    def _record(self, observation: Observation) -> Observation:
        self._seen.append((observation, self.engine.snapshot()))
        return observation


class EnvironmentHost:
    """All live environments of one worker process."""

    def __init__(self, factory: EnvironmentFactory, options: Mapping[str, Any]) -> None:
        self._factory, self._options = factory, options
        self._live: dict[int, RecordedEnvironment] = {}
        self._free: list[RecordedEnvironment] = []

    def call(self, key: int, verb: Verb, argument: Any) -> Any:
        """``verb`` of environment ``key``; the first one starts it. Raises WorkerLost for one started elsewhere."""
        if key not in self._live:
            if verb != "reset":
                raise WorkerLost(f"an environment worker of {self._factory.name!r} was replaced")
            self._live[key] = self._free.pop() if self._free else self._made()
        if verb == "close":
            self._free.append(self._live.pop(key))
            return None
        return getattr(self._live[key], verb)(argument)

    def _made(self) -> RecordedEnvironment:
        return RecordedEnvironment(self._factory.create(self._options), self._factory.name)


def work(factory: EnvironmentFactory, options: Mapping[str, Any], pipe: Connection) -> None:
    """A worker's life: answer calls until nobody asks or listens. Errors travel back to the caller."""
    host = EnvironmentHost(factory, options)
    while True:
        try:
            call = pipe.recv()
        except (EOFError, OSError, KeyboardInterrupt):  # reset where the caller left answers unread
            return
        answer: tuple[Any, R3LError | None]
        try:
            answer = (host.call(*call), None)
        except R3LError as error:
            answer = (None, error)
        except Exception:  # noqa: BLE001 - travels to the caller as an EngineError with this traceback
            answer = (None, EngineError(f"environment worker failed:\n{traceback.format_exc()}"))
        try:
            pipe.send(answer)
        except OSError:  # the caller has closed the pool
            return
