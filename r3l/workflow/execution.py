"""Snakemake as a process of ours: what it says goes to a log, and nothing it has started outlives it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path

import psutil

from r3l.processes.parent import end_with_parent, kill
from r3l.workflow.plan import LOGS

GRACE = 60.0  # seconds that jobs have for a checkpoint when they are stopped; our choice


def new_log() -> Path:
    """Where the next snakemake writes."""
    path = LOGS / f"snakemake-{datetime.now():%Y-%m-%dT%H-%M-%S}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


@contextmanager
def started(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Snakemake with the arguments ``command`` until the end of the block, which stops it and its jobs.

    It has a session of its own: Ctrl-C reaches this process alone, which then stops the others in order.
    """
    killed = partial(end_with_parent, signal.SIGKILL)  # its jobs end with it; SIGTERM would let it wait for them
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", *command], stdout=file, stderr=file, start_new_session=True, preexec_fn=killed
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """SIGINT: snakemake starts nothing more, cancels what is in a cluster's queue and waits for its own jobs, which
    save a checkpoint on SIGTERM."""
    jobs = psutil.Process(process.pid).children()
    process.send_signal(signal.SIGINT)
    for job in jobs:
        if job.is_running():
            job.terminate()
    try:
        process.wait(GRACE)
    finally:
        if process.poll() is None:
            kill([*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)])
            process.wait()
