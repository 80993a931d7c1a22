"""Preemption: SIGTERM or SIGUSR1, as schedulers send before they take a machine away, or a time limit of our own.

A stop signal ends what is being played, at the model's next token: draws are addressed, so the same episodes are
played again later. (vLLM and servers first finish what they are asked for.) It waits while anything else is at work:
an update, a checkpoint, the last files of a run. Then the command ends with exit code 75; re-run it to resume, to the
same bytes.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGALRM)
EXIT_CODE = os.EX_TEMPFAIL  # 75, "temporary failure, try again": sysexits.h


class Preempted(SystemExit):
    """A stop signal has ended the command. Not an Exception: it is not a failure, and nothing may handle it as one."""

    def __init__(self, signal_name: str) -> None:
        super().__init__(EXIT_CODE)
        self.signal_name = signal_name


class StopSignals:
    """The last stop signal that came, and the task that one cancels."""

    def __init__(self) -> None:
        self._received: str | None = None
        self._task: asyncio.Task[Any] | None = None

    def receive(self, number: int, frame: FrameType | None = None) -> None:
        self._received = signal.Signals(number).name
        if self._task:
            self._task.get_loop().call_soon_threadsafe(self._task.cancel)  # wakes a loop that waits for its pipes

    def check(self) -> None:
        """For long work inside the task that a stop signal cancels. Raises CancelledError where one has come."""
        if self._received and self._task:
            raise asyncio.CancelledError

    @contextmanager
    def cancelling(self, task: asyncio.Task[Any]) -> Iterator[None]:
        """Run ``task`` in here. Raises Preempted where a stop signal, now or before, has cancelled it."""
        self._task = task
        if self._received:
            task.cancel()
        try:
            yield
        except asyncio.CancelledError:
            if self._received is None:
                raise
            raise Preempted(self._received) from None
        finally:
            self._task = None


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Within :func:`stop_signals` or :func:`stop_at_once`: a SIGALRM comes after ``seconds`` (None: never)."""
    if seconds is not None:
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


@contextmanager
def stop_signals() -> Iterator[StopSignals]:
    """Receive stop signals until the end of the block; none in threads, which no signal reaches."""
    signals = StopSignals()
    if threading.current_thread() is not threading.main_thread():
        yield signals
        return
    with _handled(signals.receive):
        yield signals


@contextmanager
def stop_at_once() -> Iterator[None]:
    """Until the end of the block a stop signal raises Preempted at once: for work that other processes do."""

    def stop(number: int, frame: FrameType | None = None) -> None:
        raise Preempted(signal.Signals(number).name)

    with _handled(stop):
        yield


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    earlier = {number: signal.signal(number, handler) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler_before in earlier.items():
            signal.signal(number, handler_before)
