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

# torch's ``fp32_precision`` of float32 products, which chooses the library.
ONEDNN = "bf16"  # oneDNN, which may round to bfloat16 (and does so only with AMX)
MKL = "ieee"
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
    """Let torch compute with ``count`` threads, and treat subnormal floats (below 1.2e-38) as 0 in the block.

    After the block the number of threads stays at ``count``, and subnormal numbers are kept again, even if
    they were not before.
    """
    # Intel's processors are slow with subnormal numbers (its optimization manual: microcode assists), and
    # attention weights and gradients of a confident model have many (results/notebook). Weights after three
    # steps were the same bits either way.
    torch.set_flush_denormal(True)  # threads that start later inherit it
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def keep_freed_memory() -> bool:
    """Let malloc keep freed memory in this process for later tensors, until the process ends.

    Returns True if that was set, False if the C library has no mallopt (musl, macOS) or refused.
    """
    # By default glibc returns large blocks at once, so that every large tensor costs a page fault for each
    # 4 KiB.
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    settings = {M_MMAP_THRESHOLD: LARGEST, M_TRIM_THRESHOLD: LARGEST, M_TOP_PAD: TOP_PAD}
    return all(mallopt(name, value) == 1 for name, value in settings.items())


def return_freed_memory() -> None:
    """Give memory that malloc has kept back to the operating system now; does nothing without glibc."""
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:  # glibc
        malloc_trim(ctypes.c_size_t(0))


def use_onednn(wanted: bool) -> None:
    """Let torch multiply this process's float32 matrices by oneDNN from now on, or by MKL.

    It takes oneDNN only if ``wanted``, and if its products have float32 precision (:func:`is_exact`).
    """
    # oneDNN keeps the code of 1,024 shapes by default: after 80 updates a nano run had 905 MB, with 128
    # shapes 727 MB, in the same processor time. It reads the variable at its first product.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", SHAPES)
    _mkldnn.matmul.fp32_precision = ONEDNN if wanted and is_exact() else MKL


def mkl_below(rows: int) -> AbstractContextManager[None]:
    """Context in which MKL multiplies float32 matrices if ``rows`` < FEW (16); else it changes nothing."""
    return _products_by(MKL if rows < FEW else None)


def padded_rows(rows: int) -> int:
    """``rows`` rounded up to one of few numbers: 1 to 32, then 16 numbers in each doubling (34, 36, ... 64).

    So the rows increase by at most a sixteenth.
    """
    step = 1 << max(0, (rows - 1).bit_length() - 5)
    return -(-rows // step) * step


def bfloat16_factors(given: bool) -> AbstractContextManager[None]:
    """Context in which oneDNN may multiply float32 matrices in bfloat16; unless ``given``, nothing changes.

    To be used for factors that are bfloat16 numbers stored as float32: sums are float32, so nothing is
    rounded. With AMX a vocabulary projection of 150,000 words takes less than half the time.
    """
    return _products_by(ONEDNN if given else None)


def multiplies_bfloat16() -> bool:
    """True if this processor multiplies bfloat16 matrices faster than float32 ones: by AMX or AVX512-BF16."""
    # AMX shows in oneDNN's rounding of float32 products.
    return not is_exact() or bool(torch.cpu._is_avx512_bf16_supported())


@cache
def is_exact() -> bool:
    """True if oneDNN does not round float32 products on this machine; measured once, on a small product."""
    generator = torch.Generator().manual_seed(0)
    left = torch.randn(64, 192, generator=generator)
    right = torch.randn(64, 192, generator=generator)
    with _products_by(ONEDNN):
        product = left @ right.T
        exact = left.double() @ right.double().T
    return bool((product - exact).abs().max() < TOLERANCE * exact.abs().max())


@contextmanager
def _products_by(precision: str | None) -> Iterator[None]:
    """Let the library that ``precision`` (ONEDNN or MKL) chooses multiply in the block; None: as before."""
    before = _mkldnn.matmul.fp32_precision
    if precision is not None:
        _mkldnn.matmul.fp32_precision = precision
    try:
        yield
    finally:
        _mkldnn.matmul.fp32_precision = before
