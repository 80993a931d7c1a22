"""A grader that answers within a deadline whatever it is asked: it computes in processes that it may kill.

The processes are not ``multiprocessing``'s, so that a worker process of an environment, which may have no children of
that kind, and a thread, in which math-verify's own timeouts raise, can both use one.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from threading import Lock

import psutil
from r3l.envs.math.engine.grader import MathGrade

from r3l.core.errors import EngineError

DEADLINE = 2.0  # processor seconds for one answer; the slowest of 3,000 gold pairs takes 0.08 (math-verify's own is 5)
GRACE = 1.0  # what the process gets beyond the deadline to stop by itself
_WALL = 120.0  # seconds by the clock after which a process that does nothing at all is given up
_POLL = 0.1  # seconds between looks at the processor time of a process that has not answered
_START = 120.0  # seconds for a process to import sympy on a busy machine


class Grader:
    """A grading process, started when first needed. Close it, or use it as a context manager. Safe to call from several
    threads, which wait for each other."""

    def __init__(self, deadline: float = DEADLINE) -> None:
        self._deadline = deadline
        self._process: _Process | None = None
        self._asking = Lock()

    def grade(self, gold: str, answer: str | None) -> MathGrade:
        """Whether ``answer`` (None: there was none) equals ``gold``."""
        with self._asking:
            if self._process is None or not self._process.alive:
                self._process = _Process(self._deadline)
            return self._process.ask(gold, answer)

    def close(self) -> None:
        if self._process:
            self._process.kill()

    def __enter__(self) -> Grader:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class _Process:
    """One grading process and its pipes."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        command = [sys.executable, "-m", "r3l.envs.math.engine.grader", str(deadline)]
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
        before, began, spent = self._cpu_s(), time.monotonic(), 0.0
        while spent < cpu_s and time.monotonic() - began < wall_s:
            ready, _, _ = select.select([self._process.stdout], [], [], _POLL)
            if ready:
                return self._process.stdout.readline()
            spent = self._cpu_s() - before
        return ""

    def _cpu_s(self) -> float:
        try:
            times = psutil.Process(self._process.pid).cpu_times()
        except psutil.NoSuchProcess:
            return 0.0
        return float(times.user + times.system)
