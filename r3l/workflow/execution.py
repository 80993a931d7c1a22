"""Snakemake as a child process: its output goes to a log, and no process that it starts outlives it."""

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

LOCK = LOGS / ".lock"  # held by the workflow of this folder; freed when its process ends
WAITING = "waiting: another workflow holds the lock of this folder"
GRACE = 60.0  # seconds that jobs have to save a checkpoint when they are stopped; our choice


def new_log() -> Path:
    """Path of the next snakemake log, named by the time; its folder is made."""
    path = LOGS / f"snakemake-{datetime.now():%Y-%m-%dT%H-%M-%S}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def one_at_a_time(workflow: Any, jobs: Jobs) -> Callable[..., Any]:
    """A replacement of ``workflow.execute`` that first waits until no other workflow runs in this folder.

    Snakemake deletes a file before it makes it again, and another workflow may be reading it. The
    replacement also fixes settings that must hold everywhere, since runs resume from their directories.
    They are set here because snakemake makes its settings after it has read the Snakefile, and looks for a
    profile only beside that file.
    """
    execute = workflow.execute

    def waiting(*args: Any, **kwargs: Any) -> Any:
        workflow.execution_settings.keep_going = True  # one failed run does not stop the others
        workflow.execution_settings.lock = False  # snakemake's own lock would outlive a killed snakemake
        workflow.dag_settings.force_incomplete = True  # a killed job starts again
        if not workflow.is_main_process or kwargs["executor_plugin"].common_settings.dryrun_exec:
            return execute(*args, **kwargs)
        if busy():
            print(WAITING, file=sys.stderr)
        with folder_lock():
            jobs.starts = True
            return execute(*args, **kwargs)

    return waiting


def busy() -> bool:
    """Whether another workflow runs in this folder."""
    try:
        with folder_lock(timeout=0):
            return False
    except Timeout:
        return True


def folder_lock(timeout: float = -1) -> FileLock:
    """The lock of workflows in this folder; by default acquiring it waits without limit."""
    LOCK.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(LOCK, timeout=timeout)


@contextmanager
def started(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run Snakemake with the arguments ``command``; the end of the block stops it and its jobs.

    It gets a session of its own: Ctrl-C then reaches only this process, which stops the others in order.
    """
    # If this process is killed: SIGKILL, since on SIGTERM snakemake would wait for its jobs. They end with
    # it.
    killed = partial(end_with_parent, signal.SIGKILL)
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", *command],
            stdout=file,
            stderr=file,
            start_new_session=True,
            preexec_fn=killed,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            # On SIGINT snakemake starts nothing more, cancels its jobs in a cluster's queue and waits for
            # local ones. Those get SIGTERM, on which they save a checkpoint.
            jobs = psutil.Process(process.pid).children()
            process.send_signal(signal.SIGINT)
            for job in jobs:
                if job.is_running():
                    job.terminate()

            # What has not ended by then is killed, with everything below it.
            try:
                process.wait(GRACE)
            finally:
                if process.poll() is None:
                    snakemake = psutil.Process(process.pid)
                    kill([*snakemake.children(recursive=True), snakemake])
                    process.wait()
