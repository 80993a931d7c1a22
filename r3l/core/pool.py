"""Environment workers: engines live in processes (``r3l.core.worker``), methods hold asynchronous handles."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import multiprocessing
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import psutil

from r3l.core.environment import EnvironmentFactory, Observation
from r3l.core.errors import EngineError, EngineLost, ReplayMismatch
from r3l.core.task import Task
from r3l.core.worker import EnvironmentHost, WorkerLost, work

DEADLINE = 300.0  # seconds that one engine call may take; our choice, far above any measured call
ATTEMPTS = 3  # tries of one call, each on a new worker, before the run fails


@dataclass(frozen=True)
class _Worker:
    process: Any
    pipe: Connection


def _kill(process: Any) -> None:
    """End a worker and the processes that its engines started, which would outlive it where they hang."""
    with contextlib.suppress(psutil.NoSuchProcess):  # dead already
        for one in [*psutil.Process(process.pid).children(recursive=True), process]:
            one.kill()


class EnvironmentHandle:
    """One environment of the pool as a method sees it.

    It outlives its engine: when that or its worker dies or hangs, the handle plays its calls again on a new one,
    checks that the last observation is the same, and goes on.
    """

    def __init__(self, pool: EnvironmentPool, key: int) -> None:
        self._pool, self._key = pool, key
        self._calls: list[tuple[str, Any]] = []
        self._last: Observation | None = None

    async def reset(self, task: Task) -> Observation:
        """Start ``task``."""
        self._calls = []
        return await self._call("reset", task)

    async def step(self, action: str) -> Observation:
        """Apply ``action``."""
        return await self._call("step", action)

    async def rewind(self, turn: int) -> Observation:
        """Restore the state after ``turn`` actions. Raises ReplayMismatch when it is not the recorded one."""
        return await self._call("rewind", turn)

    async def close(self) -> None:
        """Give the engine back for reuse. An engine that is already lost needs no closing."""
        with contextlib.suppress(WorkerLost):
            await self._pool.call(self._key, "close", None)

    async def _call(self, verb: str, argument: Any) -> Observation:
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
        self._factory = factory
        self._options = dict(options or {})
        self._deadline = deadline
        self._keys = itertools.count()
        self._numbers = itertools.count()
        self._answers: dict[int, tuple[int, asyncio.Future[Any]]] = {}  # number -> (worker, answer)
        self._here = EnvironmentHost(factory, self._options) if workers == 0 else None
        self._workers = [self._start_worker() for _ in range(workers)]
        self._watched = False
        self.lost = 0

    def open(self) -> EnvironmentHandle:
        """A handle on an environment; its worker is chosen round robin."""
        return EnvironmentHandle(self, next(self._keys))

    async def call(self, key: int, verb: str, argument: Any) -> Any:
        """One call on environment ``key``; raises what the engine raised, or WorkerLost."""
        if self._here is not None:
            return self._here.call(key, verb, argument)
        self._watch()
        number, index = next(self._numbers), key % len(self._workers)
        answer = asyncio.get_running_loop().create_future()
        self._answers[number] = (index, answer)
        worker = self._workers[index]
        try:
            worker.pipe.send((number, key, verb, argument))
        except OSError:
            self._lose(index, worker, "has gone")
        late = asyncio.get_running_loop().call_later(self._deadline, self._late, number, index, worker)
        try:
            return await answer
        finally:
            late.cancel()

    def close(self) -> None:
        """Stop the workers."""
        for worker in self._workers:
            worker.pipe.close()
        for worker in self._workers:
            worker.process.join(timeout=5)
            if worker.process.is_alive():
                _kill(worker.process)

    def _start_worker(self) -> _Worker:
        # spawn, not fork: the parent holds torch threads
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=work, args=(self._factory, self._options, theirs), daemon=True)
        process.start()
        theirs.close()
        return _Worker(process, ours)

    def _watch(self) -> None:
        if not self._watched:
            for index in range(len(self._workers)):
                self._listen(index)
            self._watched = True

    def _listen(self, index: int) -> None:
        worker = self._workers[index]
        asyncio.get_running_loop().add_reader(worker.pipe.fileno(), self._receive, index, worker)

    def _receive(self, index: int, worker: _Worker) -> None:
        try:
            number, result, error = worker.pipe.recv()
        except (EOFError, OSError):
            self._lose(index, worker, "died")
            return
        _, answer = self._answers.pop(number)
        if answer.done():  # its caller was cancelled
            return
        if error is None:
            answer.set_result(result)
        else:
            answer.set_exception(error)

    def _late(self, number: int, index: int, worker: _Worker) -> None:
        """Lose a worker that has not answered in time. An answer that nobody has read yet is not late: while a model
        samples, this loop stands still."""
        while number in self._answers and self._workers[index] is worker and worker.pipe.poll():
            self._receive(index, worker)
        if number in self._answers:
            self._lose(index, worker, f"did not answer within {self._deadline:g} s")

    def _lose(self, index: int, worker: _Worker, why: str) -> None:
        """Replace a worker and tell everybody who waits for it; a worker that is lost already stays so."""
        if self._workers[index] is not worker:
            return
        asyncio.get_running_loop().remove_reader(worker.pipe.fileno())
        _kill(worker.process)
        worker.process.join(timeout=5)
        worker.pipe.close()
        message = f"environment worker {index} of {self._factory.name!r} {why} (exit code {worker.process.exitcode})"
        self._workers[index] = self._start_worker()
        self._listen(index)
        for number in [n for n, (of, _) in self._answers.items() if of == index]:
            _, answer = self._answers.pop(number)
            if not answer.done():
                answer.set_exception(WorkerLost(message))
