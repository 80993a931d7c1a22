"""What a slow start waits for: a person at a busy machine sees nothing for as long as packages are imported."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

AFTER = 10.0  # seconds from the start of a command; our choice
SHARE = 0.25  # of this time; our choice
STATISTICS = Path("/proc/self/schedstat")  # nanoseconds that the main thread has run, and has waited for a core


@contextmanager
def watching_for_cores(after: float = AFTER) -> Iterator[None]:
    """Say so on stderr, once, where much of the first seconds goes by waiting for a core; on Linux alone."""
    if not STATISTICS.is_file():
        yield
        return
    timer = threading.Timer(after, _say, [time.monotonic(), _waited()])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _waited() -> float:
    return int(STATISTICS.read_text().split()[1]) / 1e9


def _say(began: float, before: float) -> None:
    seconds, waited, cores = time.monotonic() - began, _waited() - before, len(os.sched_getaffinity(0))
    if waited > SHARE * seconds:
        print(
            f"waiting for a core: {waited:.0f} of the first {seconds:.0f} s went to other processes, which keep "
            f"{'the core' if cores == 1 else f'all {cores} cores'} busy; starting takes about 10 s of a free one",
            file=sys.stderr,
        )
