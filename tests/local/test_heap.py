from __future__ import annotations

import subprocess
import sys

import pytest

# Writes 64 MiB, 16,384 pages of 4 KiB, sixty times, and prints how many pages the kernel had to give.
FAULTS = """
import resource, torch
from r3l.local.cpu import keep_freed_memory
{call}
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(60):
    torch.ones(2**24)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
PAGES = 2**26 // 4096


def faults(call: str) -> int:
    run = subprocess.run([sys.executable, "-c", FAULTS.format(call=call)], capture_output=True, text=True, check=True)
    return int(run.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc")
def test_memory_of_freed_tensors_serves_the_next_ones() -> None:
    assert faults("") > 59 * PAGES  # glibc's default: every time anew
    # The first few find no place among the freed ones: aligned blocks need a little more than their size.
    assert faults("assert keep_freed_memory()") < 15 * PAGES
