"""The job folder of a run on Trinity: reports of explorer and trainer, their resume state, their logs.

The folder is ``checkpoint_root_dir/project/group/name`` of the configuration.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from subprocess import Popen

from r3l.files.json_files import read_jsonl
from r3l.files.writing import write_json_atomic, write_text_atomic
from r3l.runs.run_dir import forget_after

POLL = 0.5  # seconds between two reads of Trinity's files; our choice
ROLES = ("explorer", "trainer")
FATAL = (  # printed by `trinity run`: the run has failed, though the process may go on for hours
    b"Error in Explorer",
    b"Error in Trainer",
    b"Error during explorer preparation",
    b"Explorer or Trainer failed",
    b"WorkflowRunner run task error",
    b"NCCL weight sync failed",  # a warning in Trinity; the explorer would wait SYNC_SECONDS for the weights
    b"Save LoRA adapter error",  # and no adapter is saved
    b"Background save '",  # of a checkpoint, has failed
    b"can fulfill resource request",  # Ray, if the cluster is too small; it waits forever
)
LONGEST = max(len(word) for word in FATAL)
GRACE = 5.0  # seconds for the processes to finish writing their logs; our choice
TAIL = 25  # last lines of a log shown in an error
NEWEST = "latest_checkpointed_iteration.txt"  # both trainers read the step to resume from here


def follow(job: Path, output: Path, *processes: Popen[bytes]) -> Iterator[Mapping[int, Mapping[str, float]]]:
    """Yield :func:`reported` every half second until one of ``processes`` ends or Trinity prints an error.

    ``output``: the file with what `trinity run` prints, searched for fatal errors. ``processes``: Trinity and
    Ray, since Trinity alone would wait for a dead Ray for a quarter of an hour. Raises nothing on a failure:
    the caller judges by the reports, since Trinity exits with 0 after a crash.
    """
    with output.open("rb") as printed:
        new = b""
        while True:
            # Poll before reading, so that the last reports of a process that has ended are yielded, too.
            ended = any(process.poll() is not None for process in processes)
            yield reported(job)
            if ended:
                return
            # Keep the end of the previous read: a message may be split between two reads.
            new = new[-LONGEST:] + printed.read()
            if any(word in new for word in FATAL):
                time.sleep(GRACE)
                return
            time.sleep(POLL)


def reported(job: Path) -> dict[int, dict[str, float]]:
    """Metrics by step (from 1) that explorer and trainer of the job in folder ``job`` have both reported.

    Steps that only one has reported are left out. Read from the files of r3l.trinity.plugins:LinesMonitor.
    """
    by_role: list[dict[int, dict[str, float]]] = []
    for role in ROLES:
        steps: dict[int, dict[str, float]] = {}
        for line in read_jsonl(job / "monitor" / f"steps-{role}.jsonl"):
            # A role may write several lines per step, each with other metrics.
            steps.setdefault(int(line.pop("step")), {}).update(line)
        by_role.append(steps)
    explorer, trainer = by_role
    return {step: explorer[step] | trainer[step] for step in sorted(explorer) if step in trainer}


def evaluation_seconds(folder: Path) -> float:
    """Longest evaluation (seconds) that Trinity reported in any job under ``folder``; 0 without one."""
    files = folder.rglob("monitor/steps-explorer.jsonl")
    return max((line.get("time/eval", 0.0) for file in files for line in read_jsonl(file)), default=0.0)


def reset_to(job: Path, step: int, tasks_per_step: int) -> None:
    """Make explorer and trainer of the job in folder ``job`` resume after the checkpoint of ``step``.

    Rewrites Trinity's state files (the explorer skips ``step * tasks_per_step`` tasks), deletes the
    complete folder ``log``, and cuts the reports (``monitor/steps-*.jsonl``) after ``step``. Step 0 deletes
    ``job``.
    """
    # Without this, they would resume from different steps after a crash: Trinity saves the explorer's
    # progress at every step, but the trainer's only at checkpoints.
    if step == 0:
        shutil.rmtree(job, ignore_errors=True)
        return
    # The step of each role; the explorer also skips the tasks of the completed steps.
    state = {"latest_iteration": step}
    explorer = state | {"taskset_states": [{"current_index": step * tasks_per_step}]}
    write_json_atomic(job / "explorer_meta.json", explorer)
    write_json_atomic(job / "trainer_meta.json", state | {"sample_strategy_state": {"current_index": 0}})
    write_text_atomic(job / NEWEST, str(step))
    # Delete what is newer than the checkpoint: newer weights, reports, and the logs of the crash itself, in
    # which log_tail would find an old error.
    (job / "latest_state_dict_iteration.txt").unlink(missing_ok=True)
    for role in ROLES:
        forget_after(job / "monitor" / f"steps-{role}.jsonl", step)
    shutil.rmtree(job / "log", ignore_errors=True)


def log_tail(job: Path, output: Path) -> str:
    """The last lines (TAIL) of the job's newest log that has an error, with the name of its file.

    If the line that names the failure is earlier in the log, it is put before the last lines. If no log has
    an error, they are the last lines of ``output``, the file with what `trinity run` printed.
    """
    # Trinity logs some fatal errors as warnings.
    fatal = [word.decode() for word in FATAL]
    words = ("ERROR", *fatal)
    logs = sorted((job / "log").rglob("*.log"), key=lambda log: log.stat().st_mtime)
    texts = {log: log.read_text(errors="replace") for log in logs}
    failed = [log for log in logs if any(word in texts[log] for word in words)]
    log = failed[-1] if failed else output
    lines = log.read_text(errors="replace").replace("\r", "").splitlines()
    # A long traceback follows the line that names the failure.
    naming = [number for number, line in enumerate(lines) if any(word in line for word in fatal)]
    before = [lines[naming[-1]], "..."] if naming and naming[-1] < len(lines) - TAIL else []
    return f"The end of {log}:\n" + "\n".join([*before, *lines[-TAIL:]])
