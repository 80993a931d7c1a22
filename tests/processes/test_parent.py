"""A job of a workflow ends with it; real processes, the parent killed by SIGKILL."""

import os
import signal
import subprocess
import sys

import psutil
import pytest

IMPORTS = "import time; from r3l.processes.parent import end_with_workflow; "


@pytest.mark.parametrize("late", ["", "print(0); time.sleep(1); "])
def test_a_job_ends_with_the_workflow_that_started_it(late):
    """Killed while the job works, or before the job has asked to be told."""
    script = f"{IMPORTS}{late}end_with_workflow(); print(1); time.sleep(60)"
    job = f'R3L_PARENT=$PPID exec "{sys.executable}" -uc "{script}"'
    start = f"import os, subprocess; p = subprocess.Popen({job!r}, shell=True); print(p.pid, flush=True); p.wait()"
    workflow = subprocess.Popen(
        [sys.executable, "-c", start], stdout=subprocess.PIPE, text=True, env=os.environ
    )
    child = psutil.Process(int(workflow.stdout.readline()))
    assert workflow.stdout.readline() == ("0\n" if late else "1\n")
    workflow.send_signal(signal.SIGKILL)
    workflow.wait()
    _, alive = psutil.wait_procs([child], timeout=10)
    assert not alive
