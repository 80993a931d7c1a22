"""Snakemake as a child process: its output goes to a log, and no process that it starts outlives it."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import psutil
from filelock import FileLock, Timeout

from r3l.processes.parent import end_with_parent, kill
from r3l.workflow.plan import LOGS

if TYPE_CHECKING:
    from snakemake_interface_executor_plugins.utils import TargetSpec

    from r3l.workflow.jobs import Jobs

LOCK = LOGS / ".lock"  # held by the workflow of this folder; freed when its process ends
WAITING = "waiting: another workflow holds the lock of this folder"
GRACE = 60.0  # seconds that jobs have to save a checkpoint when they are stopped; our choice


def new_log() -> Path:
    """Path of a new log of snakemake, results/logs/snakemake-TIME.log; makes only its folder."""
    path = LOGS / f"snakemake-{datetime.now():%Y-%m-%dT%H-%M-%S}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def one_at_a_time(workflow: Any, jobs: Jobs) -> Callable[..., Any]:
    """A replacement of snakemake's ``workflow.execute`` that first waits until no other workflow runs here.

    It also lets other jobs go on after a failed one, turns snakemake's own lock off, and starts killed jobs
    again. Dry runs and submitted jobs do not wait; otherwise ``jobs.starts`` is set before jobs start.

    Workflows wait because snakemake deletes a file before it makes it again, while another workflow may read
    it. The settings are made here because snakemake makes its own after it has read the Snakefile, and looks
    for a profile only next to that file.
    """
    from snakemake.settings.enums import Quietness  # type: ignore[import-untyped]

    execute = workflow.execute

    def waiting(*args: Any, **kwargs: Any) -> Any:
        # Settings, before Snakemake plans its jobs.
        workflow.execution_settings.keep_going = True  # one failed run does not stop the others
        workflow.execution_settings.lock = False  # snakemake's own lock would outlive a killed snakemake
        workflow.dag_settings.force_incomplete = True  # a killed job starts again
        keep_words(workflow, kwargs["executor_settings"])
        dry = kwargs["executor_plugin"].common_settings.dryrun_exec
        # A dry run counts the jobs of each rule: Table 1 of the paper's tier has 700 runs, 21,000 lines.
        output = workflow.output_settings
        if dry and not (output.quiet or output.verbose or output.printshellcmds):
            output.quiet = {Quietness.RULES, Quietness.PROGRESS}

        # Submitted jobs are part of a workflow that holds the lock; a dry run changes no file.
        if not workflow.is_main_process or dry:
            return execute(*args, **kwargs)
        if busy():
            print(WAITING, file=sys.stderr)
        with folder_lock():
            jobs.starts = True
            return execute(*args, **kwargs)

    return waiting


def keep_words(workflow: Any, executor_settings: Any) -> None:
    """Patch Snakemake so that every word of a submitted job's command reaches the node unchanged.

    Three shells (of the submission, of the job, of `srun`) and Snakemake's own parser read the command. As
    Snakemake 9.27 and its Slurm plugin 2.8 write it, the first shell would execute a `$` or a backtick in a
    model's path, and a wildcard with a comma, such as r3l@alpha=5,retries=2, would be split.
    """
    from snakemake_interface_executor_plugins import utils
    from snakemake_interface_executor_plugins.executors import real

    # Quote words for a shell. Snakemake takes repr(), whose quotes may be double ones.
    as_text = utils.format_cli_value

    def quoted(value: Any, quote: bool = False, base64_encode: bool = False) -> str:
        if isinstance(value, str) and quote and not base64_encode:
            return shlex.quote(value)
        return str(as_text(value, quote, base64_encode))

    utils.format_cli_value = quoted

    # The plugin wraps the command in double quotes, unless it passes it as a script on standard input.
    if hasattr(executor_settings, "pass_command_as_script"):
        executor_settings.pass_command_as_script = True

    # The process of a submitted job finds its own name among the arguments.
    real.encode_target_jobs_cli_args = encode_jobs
    workflow.dag_settings.target_jobs = decode_jobs(workflow.dag_settings.target_jobs)


def encode_jobs(jobs: Iterable[TargetSpec]) -> list[str]:
    """Names of ``jobs`` for `snakemake --target-jobs`: rule and wildcards, which Snakemake splits at commas.

    The values of wildcards are percent-encoded, so they hold no comma.
    """
    names = []
    for rule, wildcards in jobs:
        pairs = [f"{name}={quote(str(value), safe='')}" for name, value in wildcards.items()]
        names.append(f"{rule}:{','.join(pairs)}")
    return names


def decode_jobs(jobs: Iterable[TargetSpec]) -> list[TargetSpec]:
    """The jobs that :func:`encode_jobs` named, as Snakemake has split their names."""
    return [
        job._replace(wildcards_dict={name: unquote(value) for name, value in job.wildcards_dict.items()})
        for job in jobs
    ]


def busy() -> bool:
    """Whether another workflow runs in the working directory (its lock is held)."""
    try:
        with folder_lock(timeout=0):
            return False
    except Timeout:
        return True


def folder_lock(timeout: float = -1) -> FileLock:
    """The lock of workflows in the working directory, not acquired yet; ``timeout``: seconds to wait for it.

    By default acquiring it waits without limit. Its folder is made.
    """
    LOCK.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(LOCK, timeout=timeout)


@contextmanager
def started(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start Snakemake by ``command`` and yield its process; the end of the block stops it and its jobs.

    ``command`` begins with the module's name: ``["snakemake", "--cores", "2"]``. ``log`` gets standard output
    and standard error. Jobs that are stopped have GRACE seconds to save a checkpoint. Snakemake gets a
    separate session: Ctrl-C then reaches only this process, which stops the others in order.
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

            # What has not ended by then is killed, with everything below it; Ctrl-C stays the error.
            try:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(GRACE)
            finally:
                if process.poll() is None:
                    snakemake = psutil.Process(process.pid)
                    kill([*snakemake.children(recursive=True), snakemake])
                    process.wait()
