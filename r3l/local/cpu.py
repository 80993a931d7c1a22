"""CPU settings that make torch fast: kept memory, the faster matrix products, no subnormal numbers.

torch has two libraries for matrix products. Measured with AVX-512 and one thread (results/notebook): MKL,
its default, multiplies float32 matrices at 115 GFLOP/s; oneDNN at 230 to 245 from 128 rows on, with the same
error, since MKL uses half of an AMD processor's vectors. On a processor with vectors of half that width the
two are equal (102 and 105 to 109).

torch gives float32 products to oneDNN only if ``fp32_precision`` is ``bf16``, which allows it to round them
to bfloat16. oneDNN does so only on processors with AMX. So each process tests whether products have float32
precision here, and stays with MKL if not.

oneDNN generates code for each new shape, which takes half a millisecond. So matrices with many rows are
padded to a number of rows that other matrices have too, and matrices with few rows go to MKL.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any

import torch

_mkldnn: Any = torch.backends.mkldnn  # torch's type stubs lack its attribute matmul

FEW = 16  # rows; below, oneDNN's set-up costs more than its products save
SHAPES = "128"  # whose generated code is kept: our choice; training took the same processor time with none
TOLERANCE = 1e-5  # error of a product relative to its largest number: float32 has 1e-7, bfloat16 1e-3

# Parameters of glibc's mallopt (malloc.h).
M_TRIM_THRESHOLD = -1
M_TOP_PAD = -2
M_MMAP_THRESHOLD = -3
LARGEST = 2**31 - 1  # bytes; mallopt takes an int
TOP_PAD = 64 * 2**20  # bytes by which the heap grows


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Compute with ``count`` threads; inside, a float32 below 1.2e-38 (a subnormal number) is 0.

    After the block the number of threads stays at ``count``, and subnormal numbers are kept again, even if
    they were not before.

    Intel's processors are slow with subnormal numbers (its optimization manual: microcode assists), and
    attention weights and gradients of a confident model have many (results/notebook). Weights after three
    steps were the same bits either way.
    """
    torch.set_flush_denormal(True)  # threads that start later inherit it
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def keep_freed_memory() -> bool:
    """Let this process keep the memory of freed tensors for the next ones; False without glibc's mallopt.

    By default glibc returns large blocks at once, so that every large tensor costs a page fault for each 4
    KiB.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # musl, macOS
        return False
    settings = {M_MMAP_THRESHOLD: LARGEST, M_TRIM_THRESHOLD: LARGEST, M_TOP_PAD: TOP_PAD}
    return all(mallopt(name, value) == 1 for name, value in settings.items())


def return_freed_memory() -> None:
    """Return kept memory to the kernel, so that only memory in use is resident."""
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:  # glibc
        malloc_trim(ctypes.c_size_t(0))


def use_onednn(wanted: bool) -> None:
    """Multiply this process's float32 matrices by oneDNN if ``wanted``, and if it is exact; else by MKL.

    oneDNN keeps the code of 1,024 shapes by default: after 80 updates a nano run had 905 MB, with 128 shapes
    727 MB, in the same processor time. It reads the variable at its first product.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", SHAPES)
    _allow_rounding(wanted and is_exact())


def mkl_below(rows: int) -> AbstractContextManager[None]:
    """In the block, products of matrices with few ``rows`` are computed by MKL instead of oneDNN."""
    return _rounding(False if rows < FEW else None)


def padded_rows(rows: int) -> int:
    """``rows`` rounded up by at most a sixteenth: every number up to 32, then 16 between powers of two."""
    step = 1 << max(0, (rows - 1).bit_length() - 5)
    return -(-rows // step) * step


def bfloat16_factors(given: bool) -> AbstractContextManager[None]:
    """In the block, let oneDNN multiply in bfloat16 if ``given``: all factors are bfloat16 numbers already.

    It adds in float32, so nothing is rounded. With AMX a vocabulary projection of 150,000 words takes less
    than half the time.
    """
    return _rounding(True if given else None)


def multiplies_bfloat16() -> bool:
    """True if bfloat16 matrices are multiplied faster here than float32 ones: by AMX or AVX512-BF16."""
    # AMX shows in oneDNN's rounding of float32 products.
    return not is_exact() or bool(torch.cpu._is_avx512_bf16_supported())


@cache
def is_exact() -> bool:
    """True if oneDNN's float32 products have float32 precision on this machine."""
    generator = torch.Generator().manual_seed(0)
    left = torch.randn(64, 192, generator=generator)
    right = torch.randn(64, 192, generator=generator)
    with _rounding(True):
        product = left @ right.T
        exact = left.double() @ right.double().T
    return bool((product - exact).abs().max() < TOLERANCE * exact.abs().max())


@contextmanager
def _rounding(allowed: bool | None) -> Iterator[None]:
    """Inside, oneDNN may round float32 products (true), may not (false), or as before (None)."""
    before = _mkldnn.matmul.fp32_precision
    if allowed is not None:
        _allow_rounding(allowed)
    try:
        yield
    finally:
        _mkldnn.matmul.fp32_precision = before


def _allow_rounding(allowed: bool) -> None:
    """Let oneDNN compute float32 products, which it may round; if not allowed, MKL computes them."""
    _mkldnn.matmul.fp32_precision = "bf16" if allowed else "ieee"
