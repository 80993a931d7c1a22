"""A warning on a busy machine: without it, a user sees nothing for as long as packages are imported."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

AFTER = 10.0  # seconds from the start of a command; our choice
SHARE = 0.25  # of these seconds spent waiting for a core; our choice
STATISTICS = Path("/proc/self/schedstat")  # nanoseconds that the main thread ran, and waited for a core


@contextmanager
def watching_for_cores(after: float = AFTER) -> Iterator[None]:
    """Print a warning on stderr, at most once, if this process had to wait for a CPU core in the block.

    That is so if after ``after`` seconds the main thread has waited for more than SHARE (a quarter) of them.
    Does nothing if the block ends earlier, or without /proc (other systems than Linux).
    """
    if not STATISTICS.is_file():
        yield
        return

    began = time.monotonic()
    waited_before = _seconds_waited()

    def warn() -> None:
        seconds = time.monotonic() - began
        waited = _seconds_waited() - waited_before
        cores = len(os.sched_getaffinity(0))
        if waited > SHARE * seconds:
            print(
                f"waiting for a core: {waited:.0f} of the first {seconds:.0f} s went to other processes, "
                f"which keep {'the core' if cores == 1 else f'all {cores} cores'} busy; starting takes "
                "about 10 s of a free one",
                file=sys.stderr,
            )

    # A daemon thread: a command that ends earlier does not wait for the timer.
    timer = threading.Timer(after, warn)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _seconds_waited() -> float:
    """Seconds that the main thread was ready to run but had no core."""
    return int(STATISTICS.read_text().split()[1]) / 1e9
