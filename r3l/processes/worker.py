"""The worker's side of an environment pool: engines run here and answer calls from a pipe.

A worker keeps closed engines for reuse, since starting one costs more than resetting one. It records every
observation and snapshot of the current trajectory, so that the state at a pivot can be restored and checked.
"""

from __future__ import annotations

import signal
import traceback
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, Literal

from r3l.core.environment import Environment, EnvironmentFactory, Observation
from r3l.core.errors import EngineError, EngineLost, R3LError, ReplayMismatch
from r3l.core.task import Task
from r3l.core.validation import checked_observation, close_of, closing_error

Verb = Literal["reset", "step", "rewind", "close"]


class WorkerLost(EngineLost):
    """A worker process died or hung, and all its environments with it."""


class RecordedEnvironment:
    """Wraps ``engine`` and records its episode since the last reset, so that :meth:`rewind` can go back.

    Only the first attempt is recorded: after a rewind, steps are not recorded until the next reset. So any
    number of retries can start from turns of the first attempt. ``RecordedEnvironment(engine, env)``: ``env``
    is the environment's name in messages, by default the engine's class.
    """

    def __init__(self, engine: Environment, env: str = "") -> None:
        self.engine = engine
        self._env = env or type(engine).__qualname__
        self._task: Task | None = None
        self._actions: list[str] = []
        self._seen: list[
            tuple[Observation, Any]
        ] = []  # observation and snapshot, of the reset and each action
        self._recording = False

    def reset(self, task: Task) -> Observation:
        """Start an episode of ``task`` and a new record for :meth:`rewind`; returns the first observation.

        Raises ContractError if the engine returns no valid Observation.
        """
        first = checked_observation(self._env, "reset", self.engine.reset(task))
        self._task = task
        self._actions = []
        self._seen = [(first, self.engine.snapshot())]
        self._recording = True
        return first

    def step(self, action: str) -> Observation:
        """Take one action; returns the observation after it. Recorded unless there was a rewind before.

        Raises ContractError if the engine returns no valid Observation.
        """
        now = checked_observation(self._env, "step", self.engine.step(action))
        if self._recording:
            self._actions.append(action)
            self._seen.append((now, self.engine.snapshot()))
        return now

    def rewind(self, turn: int) -> Observation:
        """Go back to the state after the first ``turn`` recorded actions; returns its observation.

        It restores the engine's snapshot if there is one, else it resets the engine and repeats the actions.
        Raises ReplayMismatch if the observation is not the recorded one (text and admissible actions);
        EngineLost if the engine fails on the way, after which the caller tries again; IndexError if fewer
        actions were recorded.
        """
        self._recording = False
        recorded, snapshot = self._seen[turn]

        # By snapshot if the engine offers them, else by playing the actions again.
        if snapshot is not None:
            now = checked_observation(self._env, "restore", self.engine.restore(snapshot))
        else:
            assert self._task is not None
            now = checked_observation(self._env, "reset", self.engine.reset(self._task))
            for action in self._actions[:turn]:
                now = checked_observation(self._env, "step", self.engine.step(action))
                if now.failed:
                    raise EngineLost(
                        f"task {self._task.id} failed while its actions were repeated: {now.failed}"
                    )

        # A retry from a wrong state would be credited to the wrong prefix, so a difference is an error.
        if (now.text, now.admissible) != (recorded.text, recorded.admissible):
            raise ReplayMismatch(
                f"task {self._task.id if self._task else '?'}, turn {turn}: the restored observation "
                f"{now.text!r} differs from the recorded {recorded.text!r}; the engine is not deterministic"
            )
        return now


class EnvironmentHost:
    """All environments of one worker process, by number; closed ones are kept and reused by later resets."""

    def __init__(self, factory: EnvironmentFactory, options: Mapping[str, Any]) -> None:
        self._factory = factory
        self._options = options
        self._live: dict[int, RecordedEnvironment] = {}
        self._free: list[RecordedEnvironment] = []  # closed, kept for reuse

    def call(self, key: int, verb: Verb, argument: Any) -> Any:
        """Call ``verb`` (reset, step, rewind, close) with ``argument`` on environment ``key``.

        Returns the observation (None for close). A reset with an unknown key makes or reuses an engine; other
        calls with an unknown key raise WorkerLost, since the environment was in a process that has ended.
        ``close`` keeps the engine, for reuse.
        """
        if key not in self._live:
            if verb != "reset":
                raise WorkerLost(f"an environment worker of {self._factory.name!r} was replaced")
            if self._free:
                self._live[key] = self._free.pop()
            else:
                self._live[key] = RecordedEnvironment(self._factory.create(self._options), self._factory.name)
        if verb == "close":
            self._free.append(self._live.pop(key))
            return None
        return getattr(self._live[key], verb)(argument)

    def engines(self) -> list[Environment]:
        """The engines of all environments, those in use first."""
        return [recorded.engine for recorded in (*self._live.values(), *self._free)]


def work(factory: EnvironmentFactory, options: Mapping[str, Any], pipe: Connection) -> None:
    """Main loop of a worker process: answer calls from ``pipe`` until its other end is closed; close engines.

    A call is ``(key, verb, argument)`` (:meth:`EnvironmentHost.call`), an answer ``(result, error or None)``:
    exceptions are sent to the caller, foreign code's as EngineError with their traceback. The call None ends
    the worker: its answer is the name of each engine's close(), then, one by one, the ``closing_error`` of
    each.
    """
    # A terminal sends Ctrl-C to every process. The caller ends this one in order, when it needs it no more.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    host = EnvironmentHost(factory, options)
    _answer_calls(host, pipe)
    engines = host.engines()
    with suppress(OSError):  # the caller may be gone; the engines are closed all the same
        pipe.send([close_of(engine) for engine in engines])
    for engine in engines:
        error = closing_error(engine)
        with suppress(OSError):
            pipe.send(error)


def _answer_calls(host: EnvironmentHost, pipe: Connection) -> None:
    """Answer calls from ``pipe`` until the call None, or until its other end is closed."""
    while True:
        try:
            call = pipe.recv()
        except (EOFError, OSError):  # OSError: the caller did not read the answer
            return
        if call is None:
            return
        # An error is an answer, too: the worker and its other environments go on.
        answer: tuple[Any, R3LError | None]
        try:
            answer = (host.call(*call), None)
        except R3LError as error:
            answer = (None, error)
        except Exception:  # noqa: BLE001 - sent to the caller as an EngineError with this traceback
            answer = (None, EngineError(f"environment worker failed:\n{traceback.format_exc()}"))
        try:
            pipe.send(answer)
        except OSError:  # the caller has closed the pool
            return
