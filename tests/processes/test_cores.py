import os
import subprocess
import sys

BUSY = "import time\nend = time.monotonic() + 4\nwhile time.monotonic() < end: pass"


def test_a_command_on_a_busy_core_says_what_it_waits_for():
    """Two processes and another on one core."""
    core = str(min(os.sched_getaffinity(0)))
    pinned = ["taskset", "-c", core, sys.executable, "-c"]
    others = [subprocess.Popen([*pinned, BUSY]) for _ in range(2)]
    watched = f"from r3l.processes.cores import watch_for_cores\nwatch_for_cores(2.0)\n{BUSY}"
    done = subprocess.run([*pinned, watched], capture_output=True, text=True)
    assert all(other.wait() == 0 for other in others)
    assert " s went to other processes, which keep the core busy" in done.stderr
