"""The job folder of a run on Trinity: what both roles report, the state that they resume from, their logs.

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

POLL = 0.5  # seconds between two readings of Trinity's files; our choice
ROLES = ("explorer", "trainer")
FATAL = (  # printed by `trinity run`: the run has failed, though the process may go on for hours
    b"Error in Explorer",
    b"Error in Trainer",
    b"Error during explorer preparation",
    b"Explorer or Trainer failed",
    b"WorkflowRunner run task error",
    b"can fulfill resource request",  # Ray, when the cluster is too small; it waits for ever
)
LONGEST = max(len(word) for word in FATAL)
GRACE = 5.0  # seconds for the logs to be written to their end; our choice
TAIL = 25  # lines of a log that an error shows
NEWEST = "latest_checkpointed_iteration.txt"  # where both trainers read the step to resume from


def follow(job: Path, output: Path, *processes: Popen[bytes]) -> Iterator[Mapping[int, Mapping[str, float]]]:
    """What both roles have reported so far, by step, until one of ``processes`` ends or Trinity prints that it failed.

    ``processes``: Trinity and Ray; Trinity alone would wait for a dead Ray for a quarter of an hour.
    """
    with output.open("rb") as printed:
        new = b""
        while True:
            ended = any(process.poll() is not None for process in processes)
            yield reported(job)
            if ended:
                return
            new = new[-LONGEST:] + printed.read()  # a message may be cut between two reads
            if any(word in new for word in FATAL):
                time.sleep(GRACE)
                return
            time.sleep(POLL)


def reported(job: Path) -> dict[int, dict[str, float]]:
    """The lines of r3l.trinity.plugins.LinesMonitor by step, for steps that every role has reported."""
    by_role: list[dict[int, dict[str, float]]] = []
    for role in ROLES:
        steps: dict[int, dict[str, float]] = {}
        for line in read_jsonl(job / "monitor" / f"steps-{role}.jsonl"):
            steps.setdefault(int(line.pop("step")), {}).update(line)
        by_role.append(steps)
    whole = set.intersection(*[set(steps) for steps in by_role])
    return {step: {k: v for steps in by_role for k, v in steps[step].items()} for step in sorted(whole)}


def reset_to(job: Path, step: int, tasks_per_step: int) -> None:
    """Make Trinity's state files say that ``step`` steps are done, as the newest checkpoint does.

    Trinity notes the explorer's progress at every step and the trainer's at its checkpoints, so that after a crash
    they would resume from different steps.
    """
    if step == 0:
        shutil.rmtree(job, ignore_errors=True)
        return
    state = {"latest_iteration": step}
    explorer = state | {"taskset_states": [{"current_index": step * tasks_per_step}]}
    write_json_atomic(job / "explorer_meta.json", explorer)
    write_json_atomic(job / "trainer_meta.json", state | {"sample_strategy_state": {"current_index": 0}})
    write_text_atomic(job / NEWEST, str(step))
    (job / "latest_state_dict_iteration.txt").unlink(missing_ok=True)
    for role in ROLES:
        forget_after(job / "monitor" / f"steps-{role}.jsonl", step)
    shutil.rmtree(job / "log", ignore_errors=True)  # errors of the run that this one resumes


def log_tail(job: Path, output: Path) -> str:
    """The end of the log whose last error is the newest, else of ``output``, what `trinity run` printed."""
    logs = sorted((job / "log").rglob("*.log"), key=lambda log: log.stat().st_mtime)
    failed = [log for log in logs if "ERROR" in log.read_text(errors="replace")]
    log = failed[-1] if failed else output
    lines = log.read_text(errors="replace").replace("\r", "").splitlines()
    return f"The end of {log}:\n" + "\n".join(lines[-TAIL:])
