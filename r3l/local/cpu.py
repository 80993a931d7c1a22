"""What makes torch fast on a CPU: freed memory is kept, the faster of its two libraries multiplies matrices, and
numbers too small for a normal float32 are 0.

Measured (results/notebook): with AVX-512 MKL, which torch asks by default, multiplies float32 matrices at
115 GFLOP/s with one thread, oneDNN, which torch has as well, at 230 to 245 from 128 rows on, as exactly. MKL uses half
of an AMD processor's vectors. On one with vectors of half the width the two are equal (102 and 105 to 109).

torch lets oneDNN have float32 products only where ``fp32_precision`` is ``bf16``, that is where it may round them to
bfloat16. oneDNN makes use of that on processors with AMX alone; so each process tries whether products are float32's
here, and stays with MKL where they are not.

oneDNN writes code for each shape that it meets, which takes half a millisecond. So matrices of many rows are padded to
a number of rows that others share, and matrices of few rows go to MKL.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any

import torch

_mkldnn: Any = torch.backends.mkldnn  # torch's types do not know its attribute matmul

FEW = 16  # rows; below, what oneDNN does before it begins costs more than it saves
TOLERANCE = 1e-5  # of a product, relative to its largest number; float32 errs by 1e-7, bfloat16 by 1e-3

# Parameters of glibc's mallopt (malloc.h).
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3
LARGEST = 2**31 - 1  # bytes; mallopt takes an int
TOP_PAD = 64 * 2**20  # bytes by which the heap grows


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Compute with ``count`` threads, to which a float32 below 1.2e-38 is 0 until the end of the block.

    Intel's processors are slow with such numbers (its optimization manual: microcode assists), and weights of attention
    and gradients of a confident model have many (results/notebook). Weights after three steps were the same
    to the last bit with them and without.
    """
    torch.set_flush_denormal(True)  # threads that start later begin with what holds in this one
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def keep_freed_memory() -> bool:
    """Let this process keep the memory of tensors that it frees, for the next ones; false where there is no mallopt.

    By default glibc returns large blocks at once, so every large tensor costs a page fault for each 4 KiB.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # musl, macOS
        return False
    settings = {M_MMAP_THRESHOLD: LARGEST, M_TRIM_THRESHOLD: LARGEST, M_TOP_PAD: TOP_PAD}
    return all(mallopt(name, value) == 1 for name, value in settings.items())


def return_freed_memory() -> None:
    """Return the memory that this process keeps to the kernel, so that what is resident is what is in use."""
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:  # glibc
        malloc_trim(ctypes.c_size_t(0))


def use_onednn(wanted: bool) -> None:
    """From now on let oneDNN multiply this process's float32 matrices where it does so in float32; or MKL."""
    _allow_rounding(wanted and is_exact())


def mkl_below(rows: int) -> AbstractContextManager[None]:
    """Products inside are of matrices with so many ``rows``: MKL's where these are few."""
    return _rounding(False if rows < FEW else None)


def padded_rows(rows: int) -> int:
    """``rows`` or some more, at most a sixteenth: all counts up to 32, and 16 from a power of two to the next."""
    step = 1 << max(0, (rows - 1).bit_length() - 5)
    return -(-rows // step) * step


def bfloat16_factors(given: bool) -> AbstractContextManager[None]:
    """Inside, where ``given``, all factors of float32 products are numbers of bfloat16: oneDNN may take them as such.

    It adds in float32, so that this rounds nothing (a vocabulary projection of 150,000 words takes less than half the
    time with AMX).
    """
    return _rounding(True if given else None)


def multiplies_bfloat16() -> bool:
    """Whether this processor multiplies matrices in bfloat16 faster than in float32: by AMX, where oneDNN rounds to it,
    or by AVX512-BF16."""
    return not is_exact() or bool(torch.cpu._is_avx512_bf16_supported())


@cache
def is_exact() -> bool:
    """Whether oneDNN's float32 products are float32's on this machine."""
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(64, 192, generator=generator) for _ in range(2))
    with _rounding(True):
        product, exact = left @ right.T, left.double() @ right.double().T
    return bool((product - exact).abs().max() < TOLERANCE * exact.abs().max())


@contextmanager
def _rounding(allowed: bool | None) -> Iterator[None]:
    """Inside, it is ``allowed``, refused, or (None) as before."""
    before = _mkldnn.matmul.fp32_precision
    if allowed is not None:
        _allow_rounding(allowed)
    try:
        yield
    finally:
        _mkldnn.matmul.fp32_precision = before


def _allow_rounding(allowed: bool) -> None:
    _mkldnn.matmul.fp32_precision = "bf16" if allowed else "ieee"
