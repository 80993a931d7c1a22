"""CPU settings: kept memory, and the library that multiplies matrices, by their number of rows."""

import os
import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from r3l.local import cpu


@pytest.fixture(autouse=True)
def as_before():
    before = torch.backends.mkldnn.matmul.fp32_precision
    yield
    torch.backends.mkldnn.matmul.fp32_precision = before


def error():
    torch.manual_seed(0)
    left, right = torch.randn(40, 192), torch.randn(192, 576)
    exact = left.double() @ right.double()
    return ((left @ right - exact).abs().max() / exact.abs().max()).item()


def test_products_are_float32_s_by_either_library():
    for wanted in (True, False):
        cpu.use_onednn(wanted)
        assert error() < 1e-6


def test_few_rows_are_mkl_s_and_then_all_is_as_before():
    torch.backends.mkldnn.matmul.fp32_precision = "bf16"
    for rows, inside in ((cpu.FEW - 1, "ieee"), (cpu.FEW, "bf16")):
        with pytest.raises(RuntimeError), cpu.mkl_below(rows):
            assert torch.backends.mkldnn.matmul.fp32_precision == inside
            raise RuntimeError
        assert torch.backends.mkldnn.matmul.fp32_precision == "bf16"


def test_threads_take_numbers_too_small_for_a_normal_float32_for_0():
    """All of a pool's, in a process of its own; this thread no longer after the block."""
    program = """
import torch
from r3l.local.cpu import threads
with threads(2):  # the pool starts inside, as in a run
    tiny = torch.full((2**20,), 1e-30)
    print(torch.count_nonzero(tiny * 1e-9).item(), torch.count_nonzero(tiny * 1e-7).item())
print(torch.count_nonzero(tiny[:8] * 1e-9).item())
"""
    assert subprocess.check_output([sys.executable, "-c", program], text=True).split() == [
        "0",
        str(2**20),
        "8",
    ]


@given(st.integers(1, 10**6))
def test_few_heights_that_cost_little(rows):
    height = cpu.padded_rows(rows)
    assert rows <= height <= rows * (1 + 1 / 16) and cpu.padded_rows(height) == height


def test_memory_that_is_kept_goes_back_between_what_is_in_use():
    """256 blocks of 1 MiB, every other freed, in a process of its own: 128 MiB stay, and then go back."""
    program = """
import torch
from r3l.local.cpu import keep_freed_memory, return_freed_memory
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 / 2**20
print(int(keep_freed_memory()))
blocks = [torch.ones(2**20, dtype=torch.uint8) for _ in range(256)]
full = resident()
del blocks[::2]
kept = resident()
return_freed_memory()
print(round(full - kept), round(full - resident()))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    keeps, by_itself, returned = map(int, done.stdout.split())
    if not keeps:
        pytest.skip("no glibc")
    assert by_itself < 16 and returned > 112


GROWTH = """
import psutil, torch
from r3l.local.cpu import is_exact, use_onednn
use_onednn(True)
factor = torch.randn(192, 192)
for rows in range(17, 940):
    if rows == 40:
        before = psutil.Process().memory_info().rss
    torch.randn(rows, 192) @ factor
print((psutil.Process().memory_info().rss - before) / 1e6 if is_exact() else -1)
"""


def test_products_of_many_shapes_do_not_keep_the_code_of_all():
    """900 shapes: a process that trains sees as many within a hundred updates."""

    def grown(**environment):
        command = [sys.executable, "-c", GROWTH]
        return float(subprocess.check_output(command, env={**os.environ, **environment}, text=True))

    kept_all = grown(ONEDNN_PRIMITIVE_CACHE_CAPACITY="1024")
    if kept_all < 0:
        pytest.skip("float32 products are not oneDNN's on this processor")
    if kept_all < 8:
        pytest.skip(f"the code of all shapes takes {kept_all:.0f} MB on this processor: nothing to bound")
    assert grown() < 0.8 * kept_all  # measured: 0.52
