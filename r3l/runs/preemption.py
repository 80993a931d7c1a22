"""Stopping early: a signal from a scheduler that takes the machine away, a time limit of our own, or Ctrl-C.

A stop signal cancels the episodes in play at the model's next token. Nothing is lost: draws are addressed,
so the same episodes are played again later. (vLLM and servers first finish their current requests.)
Updates, checkpoints and the final files of a run are never interrupted. The command then ends with exit
code 75, after Ctrl-C with 130; re-run it to resume, to the same bytes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGALRM, signal.SIGINT)  # SIGINT: Ctrl-C
log = logging.getLogger(__name__)
LONGEST = 1e9  # seconds, 31 years, that a timer can hold: as good as no limit
EXIT_CODE = os.EX_TEMPFAIL  # 75, "temporary failure, try again": sysexits.h
INTERRUPTED = 128 + signal.SIGINT  # 130, as shells and typer have it


class Preempted(SystemExit):
    """A stop signal ended the command, which exits with code 75, after Ctrl-C (SIGINT) with 130.

    It is a SystemExit, so that ``except Exception`` does not handle it as a failure.
    """

    def __init__(self, signal_name: str) -> None:
        super().__init__(INTERRUPTED if signal_name == signal.SIGINT.name else EXIT_CODE)
        self.signal_name = signal_name


class StopSignals:
    """Turns a stop signal (such as SIGTERM) into the cancellation of one asyncio task (see ``cancelling``).

    A signal that comes before a task is given is remembered, and cancels it then. Ctrl-C (SIGINT) is one of
    them; a second one raises KeyboardInterrupt at once, wherever the program is.
    """

    def __init__(self) -> None:
        self._received: str | None = None
        self._task: asyncio.Task[Any] | None = None

    def receive(self, number: int, frame: FrameType | None = None) -> None:
        """Handle signal ``number``: remember its name, and cancel the task if there is one."""
        if number == signal.SIGINT:
            # Who presses it twice does not wait.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            if self._task is None:  # the handler may have come in the middle of a write to sys.stderr
                os.write(2, b"\nstops when this update ends; Ctrl-C again stops at once\n")
        self._received = signal.Signals(number).name
        if self._task:
            self._task.get_loop().call_soon_threadsafe(self._task.cancel)  # also wakes a waiting loop

    def check(self) -> None:
        """Raise CancelledError after a stop signal; long work inside the task calls it now and then."""
        if self._received and self._task:
            raise asyncio.CancelledError

    @contextmanager
    def cancelling(self, task: asyncio.Task[Any]) -> Iterator[None]:
        """Let stop signals cancel ``task`` in this block, also signals that came before it.

        The cancellation becomes Preempted. A cancellation without a signal stays CancelledError.
        """
        self._task = task
        if self._received:  # before the task began
            task.cancel()
        try:
            yield
        except asyncio.CancelledError:
            if self._received is None:
                raise
            raise Preempted(self._received) from None
        finally:
            self._task = None


@dataclass
class TimeLimit:
    """Time limit of a training process: ``minutes`` (None: no limit) from ``began`` on (time.monotonic).

    ``first_ended``: minutes from ``began`` to the end of this process's first step, None before it; for the
    warning that the limit fits no step.
    """

    began: float
    minutes: float | None
    first_ended: float | None = None

    def seconds_left(self) -> float | None:
        """Seconds until the limit, negative after it; None without a limit."""
        return None if self.minutes is None else self.began + 60 * self.minutes - time.monotonic()

    def step_ended(self) -> None:
        """Set ``first_ended`` at the first call. Later calls change nothing."""
        if self.first_ended is None:
            self.first_ended = (time.monotonic() - self.began) / 60

    def warn_if_too_short(self) -> None:
        """Log a warning if the first step ended after the limit or not at all: the limit fits no step."""
        if self.minutes is None:
            return
        if self.first_ended is None:
            log.warning(
                "no step ended within %g minutes: give more, or lower train.tasks_per_step", self.minutes
            )
        elif self.first_ended > self.minutes:
            log.warning(
                "the first step ended after %.1f minutes, later than --minutes %g: an update that has begun "
                "is always ended; give more, or lower train.tasks_per_step",
                self.first_ended,
                self.minutes,
            )


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Send SIGALRM to this process after ``seconds`` (None: never), unless the block has ended before.

    :func:`stop_signals` and :func:`stop_at_once` take it for a stop signal; outside both it ends the process.
    """
    if seconds is not None:
        signal.setitimer(signal.ITIMER_REAL, min(max(seconds, 0.001), LONGEST))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


@contextmanager
def stop_signals() -> Iterator[StopSignals]:
    """Receive stop signals (SIGNALS) in the block, to cancel a task by them.

    Earlier handlers are put back at its end. Outside the main thread none are received, since Python's
    signals need it.
    """
    signals = StopSignals()
    if threading.current_thread() is not threading.main_thread():
        yield signals
        return
    with _handled(signals.receive):
        yield signals


@contextmanager
def stop_at_once() -> Iterator[None]:
    """Raise Preempted at once on a stop signal in the block: for work done by other processes.

    Works in the main thread only (ValueError elsewhere).
    """

    def stop(number: int, frame: FrameType | None = None) -> None:
        raise Preempted(signal.Signals(number).name)

    with _handled(stop):
        yield


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    # Shells let background jobs of scripts ignore Ctrl-C, so that it reaches the foreground alone.
    heard = [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    earlier = {number: signal.signal(number, handler) for number in heard}
    try:
        yield
    finally:
        for number, handler_before in earlier.items():
            signal.signal(number, handler_before)
