"""Processes that end with the one that has started them, even where that is killed by SIGKILL; killing several."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import psutil

PR_SET_PDEATHSIG = 1  # linux/prctl.h
PARENT = "R3L_PARENT"  # in the environment of a workflow's job: the process that has started it


def end_with_parent(number: int = signal.SIGTERM) -> None:
    """Be sent the signal ``number`` when the parent dies. Also what a new process does first (``preexec_fn``)."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)


def end_with_workflow() -> None:
    """The same in a job of a workflow. Its orphan would hold the run's directory against the workflow's next start."""
    parent = os.environ.pop(PARENT, None)
    if parent is not None:
        end_with_parent()
        if parent != str(os.getppid()):  # it has died since
            os.kill(os.getpid(), signal.SIGTERM)


def kill(processes: Iterable[Any]) -> None:
    """Kill each of ``processes`` (of psutil or multiprocessing) that has not ended meanwhile."""
    for one in processes:
        with suppress(psutil.NoSuchProcess):
            one.kill()
