"""Measuring tools of all benchmarks: a clock, peak memory, and a description of the machine."""

from __future__ import annotations

import contextlib
import os
import platform
import time
from pathlib import Path
from typing import Any

import torch

from r3l.local.cpu import return_freed_memory

STATUS = Path("/proc/self/status")
TIMES = 10  # timed matrix products, or copies
SIDE = {"cuda": 8192, "cpu": 1024}  # rows of the matrices: larger than any cache
COPIED = {"cuda": 2**30, "cpu": 2**28}  # bytes: larger than any cache


def clock() -> float:
    """Present time in seconds, read after the GPU has finished its work; only differences have a meaning."""
    # While a CUDA graph is captured nothing is computed yet, and synchronising is an error.
    if torch.cuda.is_available() and not torch.cuda.is_current_stream_capturing():
        torch.cuda.synchronize()
    return time.perf_counter()


def forget_peak() -> None:
    """Reset the recorded peak of memory, so that :func:`peak_gib` measures from now on.

    Without a GPU, freed memory is first returned to the system.
    """
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    else:
        return_freed_memory()  # else memory freed by an earlier part hides what this one needs
        with contextlib.suppress(OSError):  # not Linux
            STATUS.with_name("clear_refs").write_text("5", encoding="ascii")  # proc(5): resets VmHWM


def peak_gib() -> float | None:
    """Peak GiB since :func:`forget_peak`: of the GPU's memory if present, else of this process (Linux).

    None on another system without a GPU.
    """
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 2**30
    if not STATUS.is_file():
        return None
    lines = STATUS.read_text(encoding="ascii").splitlines()
    (peak,) = [line for line in lines if line.startswith("VmHWM:")]
    return int(peak.split()[1]) / 2**20  # kB


def matrix_rate_of(device: torch.device, dtype: torch.dtype) -> float:
    """Floating-point operations per second that ``device`` reaches in a large square matrix product.

    Measured now, over ten products after three to warm up.
    """
    side = SIDE[device.type]
    a = torch.randn(side, side, device=device, dtype=dtype)
    b = torch.randn(side, side, device=device, dtype=dtype)
    for _ in range(3):
        a @ b
    began = clock()
    for _ in range(TIMES):
        a @ b
    return TIMES * 2 * side**3 / (clock() - began)


def bandwidth_of(device: torch.device) -> float:
    """Bytes per second that a copy within the memory of ``device`` reads and writes, measured now."""
    source = torch.zeros(COPIED[device.type], dtype=torch.uint8, device=device)
    target = torch.zeros_like(source)
    target.copy_(source)
    began = clock()
    for _ in range(TIMES):
        target.copy_(source)
    return TIMES * 2 * source.nbytes / (clock() - began)


def machine() -> dict[str, Any]:
    """A description of this machine as JSON values.

    Processor, number of CPUs, GPU (None without one), mean load of the last minute, system, versions of
    Python and torch.
    """
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")  # Linux has the model's name only there
    if info.exists():
        lines = info.read_text(encoding="utf-8", errors="replace").splitlines()
        models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
        cpu = models[0] if models else cpu
    return {
        "cpu": cpu,
        "cpus": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "load_1m": os.getloadavg()[0],
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
