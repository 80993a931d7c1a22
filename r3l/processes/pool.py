"""Environment workers: engines run in processes (see ``worker``), methods hold asynchronous handles.

Engines are foreign code: a JVM, C libraries, interpreters that leak. In a separate process an engine can
hang, crash or be killed without ending the run, and several play at once in spite of Python's lock.
Recovery relies on an episode being a list of calls: engines are deterministic, so a handle whose worker is
lost repeats its calls on a new one and compares the last observation. Either the repeated episode is byte
for byte the same, or the run ends with ReplayMismatch; training never goes on with another episode.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import json
import multiprocessing
import warnings
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil

from r3l.core.environment import EnvironmentFactory, Observation
from r3l.core.errors import EngineError, EngineLost, ReplayMismatch
from r3l.core.task import Task
from r3l.core.validation import closing_error, warn_of_closing
from r3l.processes.parent import kill
from r3l.processes.worker import EnvironmentHost, Verb, WorkerLost, work

DEADLINE = 300.0  # seconds that one engine call may take; our choice, far above any measured call
CLOSING = 5.0  # seconds in which a worker must close its engines; our choice
START = 120.0  # further seconds for a process's first answer, since it imports its packages; our choice
STATES = 10_000  # states after an action that are compared with later episodes, the latest; our choice
SHOWN = 120  # characters of an observation in a message; our choice
ATTEMPTS = 3  # tries of one call, each on a new worker, before the run fails


class EnvironmentHandle:
    """One environment, whose engine runs in a worker process of ``pool``; its methods are asynchronous.

    If the engine or its worker dies or hangs, the handle repeats the calls since the last reset on a new one,
    checks that the last observation is the same, and goes on. It raises EngineError after ATTEMPTS (3)
    failures in a row, ReplayMismatch if the observation differs. ``key``: its number in the pool.
    """

    def __init__(self, pool: EnvironmentPool, key: int) -> None:
        self._pool = pool
        self._key = key
        self._calls: list[tuple[Verb, Any]] = []  # since the last reset
        self._last: Observation | None = None
        self._task = ""
        self._path = b""  # digest of the task and its actions so far; empty after a rewind

    async def reset(self, task: Task) -> Observation:
        """Start an episode of ``task``; returns its first observation.

        Raises ReplayMismatch if an earlier episode of this task in the pool had another first observation.
        """
        self._calls = []
        first = await self._call("reset", task)
        self._pool.check_first(task, first)
        self._task = task.id
        self._path = _digest([task.id])
        return first

    async def step(self, action: str) -> Observation:
        """Take one action; returns the observation after it.

        Warns once if an earlier episode showed another one after the same actions. Raises EngineError or
        ReplayMismatch as the class says.
        """
        now = await self._call("step", action)
        if self._path:
            self._path = _digest([self._path.hex(), action])
            self._pool.compare(self._task, self._path, now)
        return now

    async def rewind(self, turn: int) -> Observation:
        """Go back to the state after the first ``turn`` actions of the episode; returns its observation.

        Raises ReplayMismatch if that is not the one which was seen then.
        """
        self._path = b""
        return await self._call("rewind", turn)

    async def close(self) -> None:
        """Give the engine back to its worker for reuse; does nothing if the worker is lost."""
        with contextlib.suppress(WorkerLost):
            await self._pool.call(self._key, "close", None)

    async def _call(self, verb: Verb, argument: Any) -> Observation:
        """One call; if the engine is lost, up to ATTEMPTS tries, each after repeating the episode so far."""
        for attempt in range(ATTEMPTS):
            try:
                # A new worker does not know this episode: repeat its calls and compare the observations.
                if attempt:
                    repeated = None
                    for earlier_verb, earlier_argument in self._calls:
                        repeated = await self._pool.call(self._key, earlier_verb, earlier_argument)
                    if self._calls and repeated != self._last:
                        raise ReplayMismatch(
                            "after its engine was lost, an environment was played again and ended at "
                            f"{repeated!r} instead of {self._last!r}; the engine is not deterministic"
                        )
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


class WorkerProcess:
    """A worker process with engines of one environment, and the thread in which calls to it wait.

    The process starts at once. One that dies, or does not answer within ``deadline`` seconds (120 more for
    its first answer), is killed, and replaced at the next call. ``options``: the environment's;
    ``index``: its number, for messages.
    """

    def __init__(
        self,
        index: int,
        factory: EnvironmentFactory,
        options: Mapping[str, Any],
        deadline: float,
    ) -> None:
        self._index = index
        self._factory = factory
        self._options = options
        self._deadline = deadline
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._answered = False  # whether the present process has answered a call
        self._killed = False  # whether closing its engines took too long
        self._failed_starts = 0  # processes in a row that ended before their first answer
        self._start()

    def _start(self) -> None:
        self._answered = False
        context = multiprocessing.get_context("spawn")  # not fork: this process holds torch's threads
        self._pipe, theirs = context.Pipe()
        process = context.Process(target=work, args=(self._factory, self._options, theirs), daemon=True)
        process.start()
        self.process = process  # set only now: other code kills it or waits for it, which needs a started one
        theirs.close()

    async def call(self, key: int, verb: Verb, argument: Any) -> Any:
        """Call ``verb`` (reset, step, rewind, close) with ``argument`` on environment ``key`` in the process.

        Returns the observation (None for close). Raises the engine's own error; WorkerLost if the process
        dies or hangs; EngineError if processes end again and again before they answer anything.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._send_and_wait, key, verb, argument)

    def _send_and_wait(self, *call: Any) -> Any:
        """Make one call; it blocks, and so runs in the worker's thread."""
        if self._failed_starts >= ATTEMPTS:
            raise self._never_started()
        if self._pipe.closed:  # the process was lost in an earlier call
            self._start()
        try:
            # The first answer of a process takes longer: it imports its packages.
            self._pipe.send(call)
            patience = self._deadline + (0 if self._answered else START)
            if not self._pipe.poll(patience):
                raise self._lost(f"did not answer within {patience:g} s")
            result, error = self._pipe.recv()
            self._answered = True
            self._failed_starts = 0
        except (EOFError, OSError):
            raise self._lost("died") from None
        if error is not None:
            raise error
        return result

    def _lost(self, why: str) -> EngineError:
        """End the process; the error to raise."""
        _kill(self.process)
        self.process.join(timeout=5)
        self._pipe.close()
        self._failed_starts += not self._answered
        if self._failed_starts >= ATTEMPTS:
            return self._never_started()
        return WorkerLost(
            f"environment worker {self._index} of {self._factory.name!r} {why} "
            f"(exit code {self.process.exitcode})"
        )

    def _never_started(self) -> EngineError:
        name = self._factory.name
        return EngineError(
            f"environment worker {self._index} of {name!r} ended {ATTEMPTS} times in a row before it "
            f"answered anything (exit code {self.process.exitcode}); its own output is above. Try the "
            f"environment by itself: r3l doctor step --env {name}"
        )

    def hang_up(self) -> None:
        """End the process once the present call has ended and its engines are closed; does not wait."""
        self._ended = self._thread.submit(self._end)
        self._thread.shutdown(wait=False)

    def _end(self) -> list[str]:
        """Have the process close its engines, then close the pipe; returns what ``join`` does."""
        if self._pipe.closed:  # the process was lost in an earlier call
            return []
        names: list[str] = []  # of each engine's close()
        errors: list[str] = []
        try:
            self._pipe.send(None)
            names = self._pipe.recv()
            while len(errors) < len(names):
                errors.append(self._pipe.recv())
        except (EOFError, OSError):  # it has died, or is killed since an engine does not close
            killed = f"did not return, and its worker was killed after {CLOSING:g} s"
            why = killed if self._killed else "ended its worker"
            errors += [f"{name} {why}" for name in names[len(errors) :]]
        finally:
            self._pipe.close()
        return errors

    def join(self) -> list[str]:
        """Wait up to 5 seconds (CLOSING) for the process to end, then kill it with its child processes.

        Returns a sentence on each engine that did not close, "" for one that did.
        """
        self.process.join(timeout=CLOSING)
        if self.process.is_alive():
            self._killed = True
            _kill(self.process)
        # The process has ended, so the thread is about to return; calls that still wait in it, after an
        # error, are not waited for.
        try:
            return self._ended.result(timeout=1)
        except TimeoutError:
            return []


def _digest(content: list[Any]) -> bytes:
    return hashlib.blake2b(json.dumps(content).encode(), digest_size=16).digest()


def _kill(process: Any) -> None:
    """Kill a worker and the processes that its engines started: a hanging one would outlive its parent."""
    children = []
    with contextlib.suppress(psutil.NoSuchProcess):  # dead already
        children = psutil.Process(process.pid).children(recursive=True)
    kill([*children, process])


class EnvironmentPool:
    """``workers`` processes that run the engines of one environment; 0 runs the engines in this process.

    ``options``: the environment's settings. A worker that dies, or does not answer a call within ``deadline``
    seconds, is replaced, and episodes that were in it are repeated (EnvironmentHandle). ``lost``: how often
    an episode has lost its engine.
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
        self._env = factory.name
        # By task: digest and beginning of its first observation.
        self._first: dict[str, tuple[bytes, str]] = {}
        # The same after actions, by the digest of task and actions; only the latest.
        self._states: dict[bytes, tuple[bytes, str]] = {}
        self._warned = False
        self.lost = 0

    def open(self) -> EnvironmentHandle:
        """A handle on a new environment, in the next worker in turn; its engine starts at the first reset."""
        return EnvironmentHandle(self, next(self._keys))

    def check_first(self, task: Task, first: Observation) -> None:
        """Raise ReplayMismatch if an earlier episode of ``task`` began with another observation.

        The first call for a task records its observation.
        """
        # The members of a group and repeated attempts must be of one problem: rewards of different problems
        # say nothing about the policy when they are compared.
        seen = _digest([first.text, first.admissible])
        before, beginning = self._first.setdefault(task.id, (seen, first.text[:SHOWN]))
        if before != seen:
            raise ReplayMismatch(
                f"environment {self._env!r}: task {task.id} began with {first.text[:SHOWN]!r} and, in an "
                f"earlier episode, with {beginning!r} (first {SHOWN} characters, or the actions offered "
                "differ). A task must be the same game at every reset, or the attempts of a group are not "
                "comparable: draw everything in reset from the task (its payload, or the seed that reset "
                "is given), and keep times and counters out of the observation. Look at one: r3l doctor "
                f"step --env {self._env}"
            )

    def compare(self, task: str, path: bytes, now: Observation) -> None:
        """Warn, once, if an earlier episode had another observation than ``now`` after the same actions.

        ``task``: its id; ``path``: digest of the task and the actions. Episodes that broke down are left out.
        """
        # A hidden answer that is drawn anew at each reset shows only now. Users, markets and servers differ
        # too and may be meant, so it is no error; rewards are not compared, since a judge may waver.
        if self._warned or now.failed:
            return
        seen = _digest([now.text, now.admissible, now.done])
        before, shown = self._states.setdefault(path, (seen, now.text[:SHOWN]))
        if before != seen:
            self._warned = True
            warnings.warn(
                f"environment {self._env!r}: task {task} showed {now.text[:SHOWN]!r} and, in an earlier "
                f"episode after the same actions, {shown!r} (first {SHOWN} characters, or the actions "
                "offered or the end differ). Unless that is meant, draw everything in reset from the task, "
                "or the attempts of a group are of different games; methods that retry refuse it",
                stacklevel=2,
            )
        if len(self._states) > STATES:
            del self._states[next(iter(self._states))]

    async def call(self, key: int, verb: Verb, argument: Any) -> Any:
        """Call ``verb`` (reset, step, rewind, close) with ``argument`` on environment ``key`` of the pool.

        Returns the observation after reset, step or rewind, None after close. Raises the engine's own error,
        WorkerLost if the worker process dies or hangs, EngineError if workers end repeatedly before they
        answer.
        """
        if self._here is not None:
            return self._here.call(key, verb, argument)
        return await self._workers[key % len(self._workers)].call(key, verb, argument)

    def close(self) -> None:
        """Close all engines and end the workers; waits for them, and kills those that do not end.

        Warns once of engines whose close() raised or did not return.
        """
        # All workers first, so that they end at the same time.
        for worker in self._workers:
            worker.hang_up()
        errors = [error for worker in self._workers for error in worker.join()]
        if self._here is not None:
            errors = [closing_error(engine) for engine in self._here.engines()]
        warn_of_closing(self._env, errors)
