"""What makes torch fast on a CPU: kept memory, and which library multiplies matrices of which heights."""

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


def test_onednn_is_asked_only_where_it_is_exact(monkeypatch):
    monkeypatch.setattr(cpu, "is_exact", lambda: False)
    cpu.use_onednn(True)
    assert torch.backends.mkldnn.matmul.fp32_precision == "ieee"


@pytest.mark.parametrize("failing", [False, True])
def test_few_rows_are_mkl_s_and_then_all_is_as_before(failing):
    torch.backends.mkldnn.matmul.fp32_precision = "bf16"
    for rows, inside in ((cpu.FEW - 1, "ieee"), (cpu.FEW, "bf16")):
        try:
            with cpu.mkl_below(rows):
                assert torch.backends.mkldnn.matmul.fp32_precision == inside
                if failing:
                    raise RuntimeError
        except RuntimeError:
            assert failing
        assert torch.backends.mkldnn.matmul.fp32_precision == "bf16"


def test_heights_by_hand():
    rows = [1, 31, 32, 33, 64, 65, 128, 129, 1000, 4097]
    assert [cpu.padded_rows(count) for count in rows] == [1, 31, 32, 34, 64, 68, 128, 136, 1024, 4352]


@given(st.integers(1, 10**6))
def test_few_heights_that_cost_little(rows):
    height = cpu.padded_rows(rows)
    assert rows <= height <= rows * (1 + 1 / 16) and cpu.padded_rows(height) == height


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


def faults(call):
    run = subprocess.run([sys.executable, "-c", FAULTS.format(call=call)], capture_output=True, text=True, check=True)
    return int(run.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc")
def test_memory_of_freed_tensors_serves_the_next_ones():
    assert faults("") > 59 * PAGES  # glibc's default: every time anew
    # The first few find no place among the freed ones: aligned blocks need a little more than their size.
    assert faults("assert keep_freed_memory()") < 15 * PAGES
