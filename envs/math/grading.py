"""A grader that answers within a deadline whatever it is asked: it computes in processes that it may kill.

The processes are not ``multiprocessing``'s, so that a worker process of an environment, which may have no children of
that kind, and a thread, in which math-verify's own timeouts raise, can both use one.
"""

from __future__ import annotations

import json
import os
import queue
import select
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Lock

import psutil
from r3l.envs.math.grader import MathGrade

from r3l.core.errors import EngineError

DEADLINE = 2.0  # processor seconds for one answer; the slowest of 3,000 gold pairs takes 0.08 (math-verify's own is 5)
GRACE = 1.0  # what the process gets beyond the deadline to stop by itself
_WALL = 120.0  # seconds by the clock after which a process that does nothing at all is given up
_POLL = 0.1  # seconds between looks at the processor time of a process that has not answered
_START = 120.0  # seconds for a process to import sympy on a busy machine


class Grader:
    """``workers`` grading processes, started when first needed. Close it, or use it as a context manager.

    ``counts`` holds how many answers had each status, ``slowest`` the processor seconds of the slowest (0 where none
    took a tenth of a second), ``over`` how many took more than the deadline and what a kill may add to it. Safe to call
    from several threads.
    """

    def __init__(self, workers: int = 1, deadline: float = DEADLINE) -> None:
        self._deadline, self._workers = deadline, workers
        self._idle: queue.SimpleQueue[_Process | None] = queue.SimpleQueue()
        for _ in range(workers):
            self._idle.put(None)
        self.counts: Counter[str] = Counter()
        self.slowest, self.over = 0.0, 0
        self._counting = Lock()

    def grade(self, gold: str, answer: str | None) -> MathGrade:
        """Whether ``answer`` (None: there was none) equals ``gold``."""
        with self._process() as process:
            grade, spent = process.ask(gold, answer), process.spent
        with self._counting:
            self.counts[grade.status] += 1
            self.slowest = max(self.slowest, spent)
            self.over += spent > self._deadline + GRACE + 2 * _POLL
        return grade

    def grade_all(
        self, pairs: Iterable[tuple[str, str | None]], done: Callable[[], None] | None = None
    ) -> list[MathGrade]:
        """``grade`` of every (gold, answer), all workers at once, in the order given; ``done`` is called after each."""

        def one(pair: tuple[str, str | None]) -> MathGrade:
            grade = self.grade(*pair)
            if done:
                done()
            return grade

        with ThreadPoolExecutor(self._workers) as threads:
            return list(threads.map(one, pairs))

    def close(self) -> None:
        for _ in range(self._workers):
            if process := self._idle.get():
                process.kill()
            self._idle.put(None)

    def __enter__(self) -> Grader:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @contextmanager
    def _process(self) -> Iterator[_Process]:
        process = self._idle.get()
        try:
            if process is None or not process.alive:
                process = _Process(self._deadline)
            yield process
        finally:
            self._idle.put(process)


class _Process:
    """One grading process and its pipes."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self.spent = 0.0  # processor seconds of the last answer, as far as anybody looked
        command = [sys.executable, "-m", "r3l.envs.math.grader", str(deadline)]
        path = {"PYTHONPATH": os.pathsep.join(sys.path)}  # the r3l that runs here
        self._process = subprocess.Popen(
            command, env=os.environ | path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        if self._read(_START, _START) != "ready\n":
            self.kill()
            raise EngineError(
                f"the grading process did not start; try it by hand: {' '.join(command)} (pip install math-verify)"
            )

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, gold: str, answer: str | None) -> MathGrade:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps([gold, answer]) + "\n")
            line = self._read(self._deadline + GRACE, _WALL)
        except BrokenPipeError:
            line = ""
        if not line:
            crashed = not self.alive  # it ended itself: out of memory, or a defect of sympy
            self.kill()
            return MathGrade(False, "crash" if crashed else "timeout")
        correct, status, by = json.loads(line)
        return MathGrade(correct, status, by)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _read(self, cpu_s: float, wall_s: float) -> str:
        """A line, or nothing when the time is up (of the processor, or by the clock) or the process has ended."""
        assert self._process.stdout is not None
        before, began, self.spent = self._cpu_s(), time.monotonic(), 0.0
        while self.spent < cpu_s and time.monotonic() - began < wall_s:
            ready, _, _ = select.select([self._process.stdout], [], [], _POLL)
            if ready:
                return self._process.stdout.readline()
            self.spent = self._cpu_s() - before
        return ""

    def _cpu_s(self) -> float:
        try:
            times = psutil.Process(self._process.pid).cpu_times()
        except psutil.NoSuchProcess:
            return 0.0
        return float(times.user + times.system)
