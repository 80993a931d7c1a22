"""Snakemake as a process of ours: what it says goes to a log, and nothing it has started outlives it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from filelock import FileLock, Timeout

from r3l.processes.parent import end_with_parent, kill
from r3l.workflow.plan import LOGS

if TYPE_CHECKING:
    from r3l.workflow.jobs import Jobs

LOCK = LOGS / ".lock"  # of the workflow that works in this folder; it ends with its process
WAITING = "another workflow works in this folder; this one starts when it has ended"
GRACE = 60.0  # seconds that jobs have for a checkpoint when they are stopped; our choice


def new_log() -> Path:
    """Where the next snakemake writes."""
    path = LOGS / f"snakemake-{datetime.now():%Y-%m-%dT%H-%M-%S}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def one_at_a_time(workflow: Any, jobs: Jobs) -> Callable[..., Any]:
    """What is to take the place of ``workflow.execute``: it waits until no other workflow works in this folder, since
    snakemake deletes a file before it makes it again, which another one may be reading.

    It sets what always holds where runs resume from their directories. Here, since snakemake makes its settings after
    it has read the Snakefile, and looks for a profile beside that alone.
    """
    execute = workflow.execute

    def waiting(*args: Any, **kwargs: Any) -> Any:
        workflow.execution_settings.keep_going = True  # one failed run does not stop the others
        workflow.execution_settings.lock = False  # it would outlive a killed snakemake
        workflow.dag_settings.force_incomplete = True  # a killed job starts again
        if not workflow.is_main_process or kwargs["executor_plugin"].common_settings.dryrun_exec:
            return execute(*args, **kwargs)
        if busy():
            print(WAITING, file=sys.stderr)
        with _lock():
            jobs.starts = True
            return execute(*args, **kwargs)

    return waiting


def busy() -> bool:
    """Whether another workflow works in this folder."""
    try:
        with _lock(timeout=0):
            return False
    except Timeout:
        return True


def _lock(timeout: float = -1) -> FileLock:
    LOCK.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(LOCK, timeout=timeout)


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
