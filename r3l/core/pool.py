"""Environment workers: engines live in processes, methods hold asynchronous handles.

A worker keeps closed engines for reuse (starting one costs more than resetting one) and remembers every
observation and snapshot of the trajectory in play, so that a pivot can be restored and checked.
"""

from __future__ import annotations

import asyncio
import importlib
import itertools
import multiprocessing
import traceback
from multiprocessing.connection import Connection
from typing import Any

from r3l.core.environment import Environment, EnvironmentPackage, Observation
from r3l.core.errors import ConfigError, EngineError, R3LError, ReplayMismatch
from r3l.core.task import Task


def find_package(name: str) -> EnvironmentPackage:
    """The environment package ``envs.<name>``. Raises ConfigError when there is none."""
    try:
        module = importlib.import_module(f"envs.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"envs.{name}":
            raise
        raise ConfigError(f"environment {name!r} is unknown: there is no package envs/{name}/") from error
    package: EnvironmentPackage = module.PACKAGE
    return package


class Recorded:
    """An engine plus the record of its trajectory: the worker-side half of a handle.

    The record is that of the trajectory played from the start: after a rewind nothing is added to it, so that any
    number of retries can start from its turns.
    """

    def __init__(self, engine: Environment) -> None:
        self.engine = engine
        self._task: Task | None = None
        self._actions: list[str] = []
        self._seen: list[tuple[Observation, Any]] = []
        self._recording = False

    def reset(self, task: Task) -> Observation:
        """Start ``task`` and forget the previous trajectory."""
        self._task, self._actions, self._seen, self._recording = task, [], [], True
        return self._record(self.engine.reset(task))

    def step(self, action: str) -> Observation:
        """One action, recorded unless it follows a rewind."""
        now = self.engine.step(action)
        if self._recording:
            self._actions.append(action)
            self._record(now)
        return now

    def rewind(self, turn: int) -> Observation:
        """Back to the state after ``turn`` recorded actions: by snapshot, else by replay; checked either way."""
        self._recording = False
        recorded, snapshot = self._seen[turn]
        if snapshot is not None:
            now = self.engine.restore(snapshot)
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
        now = self.engine.reset(self._task)
        for action in actions:
            now = self.engine.step(action)
        return now

    def _record(self, observation: Observation) -> Observation:
        self._seen.append((observation, self.engine.snapshot()))
        return observation


class _Host:
    """All live environments of one worker process."""

    def __init__(self, package: EnvironmentPackage) -> None:
        self._package = package
        self._live: dict[int, Recorded] = {}
        self._free: list[Recorded] = []

    def call(self, key: int, verb: str, argument: Any) -> Any:
        if verb == "close":
            self._free.append(self._live.pop(key))
            return None
        if key not in self._live:
            self._live[key] = self._free.pop() if self._free else Recorded(self._package.create())
        return getattr(self._live[key], verb)(argument)


def _work(package_name: str, pipe: Connection) -> None:
    """A worker's life: answer calls until the pipe closes. Errors travel back to the caller."""
    host = _Host(find_package(package_name))
    while True:
        try:
            number, *call = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            return
        answer: tuple[int, Any, R3LError | None]
        try:
            answer = (number, host.call(*call), None)
        except R3LError as error:
            answer = (number, None, error)
        except Exception:  # noqa: BLE001 - travels to the caller as an EngineError with this traceback
            answer = (number, None, EngineError(f"environment worker failed:\n{traceback.format_exc()}"))
        pipe.send(answer)


class Handle:
    """One environment of the pool as a method sees it."""

    def __init__(self, pool: EnvironmentPool, key: int) -> None:
        self._pool, self._key = pool, key

    async def reset(self, task: Task) -> Observation:
        """Start ``task``."""
        observation: Observation = await self._pool.call(self._key, "reset", task)
        return observation

    async def step(self, action: str) -> Observation:
        """Apply ``action``."""
        observation: Observation = await self._pool.call(self._key, "step", action)
        return observation

    async def rewind(self, turn: int) -> Observation:
        """Restore the state after ``turn`` actions. Raises ReplayMismatch when it is not the recorded one."""
        observation: Observation = await self._pool.call(self._key, "rewind", turn)
        return observation

    async def close(self) -> None:
        """Give the engine back for reuse."""
        await self._pool.call(self._key, "close", None)


class EnvironmentPool:
    """Worker processes for one environment package; ``workers=0`` runs the engines in this process."""

    def __init__(self, package_name: str, workers: int) -> None:
        self._package_name = package_name
        self._keys = itertools.count()
        self._numbers = itertools.count()
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._here = _Host(find_package(package_name)) if workers == 0 else None
        self._pipes: list[Connection] = []
        self._processes: list[Any] = []
        self._watched = False
        for _ in range(workers):
            self._start_worker()

    def open(self) -> Handle:
        """A handle on an environment; its worker is chosen round robin."""
        return Handle(self, next(self._keys))

    async def call(self, key: int, verb: str, argument: Any) -> Any:
        """One call on environment ``key``; raises what the engine raised."""
        if self._here is not None:
            return self._here.call(key, verb, argument)
        self._watch()
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        self._pipes[key % len(self._pipes)].send((number, key, verb, argument))
        return await answer

    def close(self) -> None:
        """Stop the workers."""
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(timeout=5)
            if process.is_alive():
                process.terminate()

    def _start_worker(self) -> None:
        # spawn, not fork: the parent holds torch threads
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(self._package_name, theirs), daemon=True)
        process.start()
        theirs.close()
        self._pipes.append(ours)
        self._processes.append(process)

    def _watch(self) -> None:
        if not self._watched:
            loop = asyncio.get_running_loop()
            for index, pipe in enumerate(self._pipes):
                loop.add_reader(pipe.fileno(), self._receive, index)
            self._watched = True

    def _receive(self, index: int) -> None:
        try:
            number, result, error = self._pipes[index].recv()
        except (EOFError, ConnectionResetError):
            self._worker_died(index)
            return
        answer = self._answers.pop(number)
        if answer.done():  # its caller was cancelled
            return
        if error is None:
            answer.set_result(result)
        else:
            answer.set_exception(error)

    def _worker_died(self, index: int) -> None:
        asyncio.get_running_loop().remove_reader(self._pipes[index].fileno())
        self._processes[index].join(timeout=1)
        code = self._processes[index].exitcode
        error = EngineError(
            f"environment worker {index} of {self._package_name!r} died (exit code {code}); "
            "if the machine ran out of memory, lower `workers` in the tier's config"
        )
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(error)
