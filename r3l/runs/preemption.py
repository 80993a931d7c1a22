"""StopSignals to stop: SIGTERM or SIGUSR1, as schedulers send before they take a machine away, or a time limit of our
own.

An order ends what is being played, at the model's next answer: draws are addressed, so the same episodes are played
again later. It waits while anything else is at work: an update, a checkpoint, the last files of a run. Then the command
ends with exit code 75, and the same command goes on, to the same bytes.
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
    """The command was told to stop. Not an Exception: it is no failure, and nothing may handle it as one."""

    def __init__(self, order: str) -> None:
        super().__init__(EXIT_CODE)
        self.order = order


class StopSignals:
    """The last order that came, and the task that an order cancels."""

    def __init__(self) -> None:
        self._order: str | None = None
        self._task: asyncio.Task[Any] | None = None

    def receive(self, number: int, frame: FrameType | None = None) -> None:
        """The signal handler."""
        self._order = signal.Signals(number).name
        if self._task:
            self._task.get_loop().call_soon_threadsafe(self._task.cancel)  # wakes a loop that waits for its pipes

    @contextmanager
    def cancelling(self, task: asyncio.Task[Any]) -> Iterator[None]:
        """Run ``task`` in here. Raises Preempted where an order, now or before, has cancelled it."""
        self._task = task
        if self._order:
            task.cancel()
        try:
            yield
        except asyncio.CancelledError:
            if self._order is None:
                raise
            raise Preempted(self._order) from None
        finally:
            self._task = None


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Within :func:`stop_signals` or :func:`stop_at_once`: an order, SIGALRM, comes after ``seconds`` (None: never)."""
    if seconds is not None:
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


@contextmanager
def stop_signals() -> Iterator[StopSignals]:
    """Receive orders until the end of the block; none in threads, which no signal reaches."""
    found = StopSignals()
    if threading.current_thread() is not threading.main_thread():
        yield found
        return
    with _handled(found.receive):
        yield found


@contextmanager
def stop_at_once() -> Iterator[None]:
    """Until the end of the block an order raises Preempted at once: for work that other processes do."""

    def leave(number: int, frame: FrameType | None = None) -> None:
        raise Preempted(signal.Signals(number).name)

    with _handled(leave):
        yield


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in SIGNALS}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
