"""Environment workers: engines live in processes (see ``worker``), methods hold asynchronous handles.

Engines are foreign code: a JVM, C libraries, interpreters that leak. In a process of its own an engine can hang, crash
or be killed without taking the run along, and several play at once in spite of Python's lock. What makes that safe is
that an episode is a list of calls: engines are deterministic, so a handle whose worker is lost plays its calls again on
a new one and compares the last observation. An episode that was played twice is thus byte for byte the one that would
have been played, or the run ends with ReplayMismatch; never does training go on with another episode.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import multiprocessing
import warnings
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil

from r3l.core.environment import EnvironmentFactory, Observation
from r3l.core.errors import EngineError, EngineLost, ReplayMismatch
from r3l.core.task import Task
from r3l.processes.parent import kill
from r3l.processes.worker import EnvironmentHost, Verb, WorkerLost, work

DEADLINE = 300.0  # seconds that one engine call may take; our choice, far above any measured call
START = 120.0  # further seconds for the first answer of a process, which imports its packages; our choice
ATTEMPTS = 3  # tries of one call, each on a new worker, before the run fails


def _kill(process: Any) -> None:
    """End a worker and the processes that its engines started, which would outlive it where they hang."""
    children = []
    with contextlib.suppress(psutil.NoSuchProcess):  # dead already
        children = psutil.Process(process.pid).children(recursive=True)
    kill([*children, process])


class EnvironmentHandle:
    """One environment of the pool as a method sees it.

    It outlives its engine: when that or its worker dies or hangs, the handle plays its calls again on a new one,
    checks that the last observation is the same, and goes on.
    """

    def __init__(self, pool: EnvironmentPool, key: int) -> None:
        self._pool, self._key = pool, key
        self._calls: list[tuple[Verb, Any]] = []
        self._last: Observation | None = None

    async def reset(self, task: Task) -> Observation:
        self._calls = []
        return await self._call("reset", task)

    async def step(self, action: str) -> Observation:
        return await self._call("step", action)

    async def rewind(self, turn: int) -> Observation:
        """Restore the state after ``turn`` actions. Raises ReplayMismatch when it is not the recorded one."""
        return await self._call("rewind", turn)

    async def close(self) -> None:
        """Give the engine back for reuse. An engine that is already lost needs no closing."""
        with contextlib.suppress(WorkerLost):
            await self._pool.call(self._key, "close", None)

    async def _call(self, verb: Verb, argument: Any) -> Observation:
        for attempt in range(ATTEMPTS):
            try:
                if attempt:
                    await self._play_again()
                self._last = await self._pool.call(self._key, verb, argument)
            except EngineLost as error:
                self._pool.lost += 1
                if attempt == ATTEMPTS - 1:
                    what = argument.id if isinstance(argument, Task) else argument
                    raise EngineError(f"{error}, {ATTEMPTS} times in a row at {verb} {what!r}") from error
                warnings.warn(f"{error}; an episode is played again", stacklevel=2)
            else:
                self._calls.append((verb, argument))
                return self._last
        raise AssertionError("unreachable")

    async def _play_again(self) -> None:
        now = None
        for verb, argument in self._calls:
            now = await self._pool.call(self._key, verb, argument)
        if now != self._last and self._calls:
            raise ReplayMismatch(
                f"after its engine was lost, an environment was played again and ended at {now!r} instead of "
                f"{self._last!r}; the engine is not deterministic"
            )


class WorkerProcess:
    """A worker process and the thread that calls it and waits. A lost process is replaced at the next call."""

    def __init__(self, index: int, factory: EnvironmentFactory, options: Mapping[str, Any], deadline: float) -> None:
        self._index, self._factory, self._options, self._deadline = index, factory, options, deadline
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._answered, self._failed_starts = False, 0  # the present process; those in a row that have answered nothing
        self._start()

    def _start(self) -> None:
        self._answered = False
        context = multiprocessing.get_context("spawn")  # not fork: this process holds torch's threads
        self._pipe, theirs = context.Pipe()
        process = context.Process(target=work, args=(self._factory, self._options, theirs), daemon=True)
        process.start()
        self.process = process  # others may kill it or wait for it: only one that was started
        theirs.close()

    async def call(self, key: int, verb: Verb, argument: Any) -> Any:
        """One call on environment ``key``; raises what the engine raised, or WorkerLost.

        EngineError where no process comes to answer at all: that concerns more than one episode.
        """
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._wait, key, verb, argument)

    def _wait(self, *call: Any) -> Any:
        if self._failed_starts >= ATTEMPTS:
            raise self._never_started()
        if self._pipe.closed:
            self._start()
        try:
            self._pipe.send(call)
            patience = self._deadline + (0 if self._answered else START)
            if not self._pipe.poll(patience):
                raise self._lost(f"did not answer within {patience:g} s")
            result, error = self._pipe.recv()
            self._answered, self._failed_starts = True, 0
        except (EOFError, OSError):
            raise self._lost("died") from None
        if error is not None:
            raise error
        return result

    def _lost(self, why: str) -> EngineError:
        _kill(self.process)
        self.process.join(timeout=5)
        self._pipe.close()
        self._failed_starts += not self._answered
        if self._failed_starts >= ATTEMPTS:
            return self._never_started()
        name, code = self._factory.name, self.process.exitcode
        return WorkerLost(f"environment worker {self._index} of {name!r} {why} (exit code {code})")

    def _never_started(self) -> EngineError:
        name = self._factory.name
        return EngineError(
            f"environment worker {self._index} of {name!r} ended {ATTEMPTS} times in a row before it answered anything "
            f"(exit code {self.process.exitcode}); what it printed stands above. Try the environment by itself: "
            f"r3l doctor step --env {name}"
        )

    def hang_up(self) -> None:
        """Close the pipe after the call that is under way, which ends the process."""
        self._thread.submit(self._pipe.close)
        self._thread.shutdown(wait=False)

    def join(self) -> None:
        """Wait until the process has ended, but not long."""
        self.process.join(timeout=5)
        if self.process.is_alive():
            _kill(self.process)


class EnvironmentPool:
    """Worker processes for the engines of one environment; ``workers=0`` runs the engines in this process.

    A worker that dies, or does not answer within ``deadline`` seconds, is replaced and its handles recover, as they do
    from an EngineLost; ``lost`` counts the times that an episode lost its engine.
    """

    def __init__(
        self,
        factory: EnvironmentFactory,
        workers: int,
        options: Mapping[str, Any] | None = None,
        deadline: float = DEADLINE,
    ) -> None:
        options = dict(options or {})
        self._keys = itertools.count()
        self._here = EnvironmentHost(factory, options) if workers == 0 else None
        self._workers = [WorkerProcess(index, factory, options, deadline) for index in range(workers)]
        self.lost = 0

    def open(self) -> EnvironmentHandle:
        """A handle on an environment; its worker is chosen round robin."""
        return EnvironmentHandle(self, next(self._keys))

    async def call(self, key: int, verb: Verb, argument: Any) -> Any:
        """One call on environment ``key``; raises what the engine raised, or WorkerLost."""
        if self._here is not None:
            return self._here.call(key, verb, argument)
        return await self._workers[key % len(self._workers)].call(key, verb, argument)

    def close(self) -> None:
        for worker in self._workers:
            worker.hang_up()
        for worker in self._workers:
            worker.join()
