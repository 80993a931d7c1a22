import os
import subprocess
import sys

import pytest

BUSY = "import time\nend = time.monotonic() + 0.8\nwhile time.monotonic() < end: pass"
WATCHED = "from r3l.processes.cores import watching_for_cores\nwith watching_for_cores({}):\n    exec({!r})"


@pytest.mark.parametrize(("after", "says"), [(0.3, True), (30.0, False)])
def test_a_command_on_a_busy_core_says_what_it_waits_for(after, says):
    """With two others on one core; silent after the end."""
    core = str(min(os.sched_getaffinity(0)))
    pinned = ["taskset", "-c", core, sys.executable, "-c"]
    others = [subprocess.Popen([*pinned, BUSY]) for _ in range(2)]
    done = subprocess.run([*pinned, WATCHED.format(after, BUSY)], capture_output=True, text=True)
    assert all(other.wait() == 0 for other in others)
    assert (" s went to other processes, which keep the core busy" in done.stderr) == says
