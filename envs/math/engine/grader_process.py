"""A grader with a deadline: it grades in a separate process, which is killed when it takes too long.

The process is no ``multiprocessing`` one, so that workers, which may not have such children, can use it, and
threads too, in which math-verify's own timeouts raise.
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

# Processor seconds for one answer; the slowest of 3,000 gold pairs takes 0.08 (math-verify's default is 5).
DEADLINE = 2.0
GRACE = 1.0  # additional processor seconds in which the process can stop by itself
_WALL = 120.0  # seconds of wall-clock time after which an idle process is killed
_POLL = 0.1  # seconds between checks of the processor time
_START = 120.0  # seconds for the import of sympy on a busy machine


class Grader:
    """Grades answers in a separate process, started when first needed and again after a time limit.

    ``deadline``: processor seconds for one answer. Close it, or use it in a ``with`` block. Threads can share
    one: calls wait for each other.
    """

    def __init__(self, deadline: float = DEADLINE) -> None:
        self._deadline = deadline
        self._process: _Process | None = None
        self._lock = Lock()

    def grade(self, gold: str, answer: str | None) -> MathGrade:
        """Compare ``answer`` (None: the response had none) with ``gold``, both without a box.

        After the time limit, or if the process dies, the answer is wrong with status "timeout" or "crash".
        Raises EngineError if no grading process can be started.
        """
        with self._lock:
            if self._process is None or not self._process.alive:
                self._process = _Process(self._deadline)
            return self._process.grade(gold, answer)

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
            command,
            env=os.environ | path,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        if self._read(_START, _START) != "ready\n":
            self.kill()
            raise EngineError(
                f"the grading process did not start; to see why, run: {' '.join(command)} "
                "(pip install math-verify)"
            )

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def grade(self, gold: str, answer: str | None) -> MathGrade:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps([gold, answer]) + "\n")
            line = self._read(self._deadline + GRACE, _WALL)
        except BrokenPipeError:
            line = ""
        if not line:
            crashed = not self.alive  # it ended by itself: out of memory, or a defect of sympy
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
        """The next line; "" after ``cpu_s`` of processor time or ``wall_s``, or if the process has ended."""
        assert self._process.stdout is not None
        before = self._cpu_s()
        began = time.monotonic()
        spent = 0.0
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
