"""Child processes that end with their parent, even if the parent is killed by SIGKILL. Linux only."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import psutil

PR_SET_PDEATHSIG = 1  # linux/prctl.h
PARENT = "R3L_PARENT"  # environment variable of a workflow's job: process id of the process that started it


def end_with_parent(number: int = signal.SIGTERM) -> None:
    """Have the kernel send signal ``number`` to this process when its parent dies.

    Usable as ``preexec_fn`` of subprocess, which calls it in the new process.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)


def end_with_workflow() -> None:
    """If a workflow started this process: have it end (SIGTERM) as soon as the workflow's process is dead.

    The environment variable R3L_PARENT tells and is removed; without it nothing happens. (A job that goes on
    alone would keep the run's directory locked.)
    """
    parent = os.environ.pop(PARENT, None)
    if parent is not None:
        end_with_parent()
        # The parent may have died before the line above; then no signal will come.
        if parent != str(os.getppid()):
            os.kill(os.getpid(), signal.SIGTERM)


def kill(processes: Iterable[Any]) -> None:
    """Send SIGKILL to these processes (of psutil or multiprocessing); one that has already ended is skipped.

    Does not wait for them.
    """
    for one in processes:
        with suppress(psutil.NoSuchProcess):
            one.kill()
