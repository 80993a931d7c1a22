"""The C library's heap, from which torch takes every tensor on a CPU."""

from __future__ import annotations

import ctypes

# Parameters of glibc's mallopt (malloc.h).
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3
LARGEST = 2**31 - 1  # bytes; mallopt takes an int
TOP_PAD = 64 * 2**20  # bytes by which the heap grows


def keep_freed_memory() -> bool:
    """Let this process keep the memory of tensors that it frees, for the next ones; false where there is no mallopt.

    By default glibc gives large blocks back at once, so every large tensor costs a page fault for each 4 KiB.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # musl, macOS
        return False
    settings = {M_MMAP_THRESHOLD: LARGEST, M_TRIM_THRESHOLD: LARGEST, M_TOP_PAD: TOP_PAD}
    return all(mallopt(name, value) == 1 for name, value in settings.items())


def return_freed_memory() -> None:
    """Give the kernel the memory that this process keeps, so that what is resident is what is in use."""
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:  # glibc
        malloc_trim(ctypes.c_size_t(0))
