"""Attention on a CPU in machine code, and the decoder that uses it."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from r3l.local.model.forward import Pass, has_cpu_kernels


def cpu_kernels(model: Any, forward_pass: Pass) -> ModuleType | None:
    """The module cpu_kernel_decoder if ``forward_pass`` of ``model`` can use it, else None.

    Its kernels are compiled if they are not in the cache on disk (kernels.compilation).
    """
    if forward_pass != "packed" or not has_cpu_kernels(model):
        return None
    # Imported here, since numba takes a third of a second.
    from r3l.local.kernels import compilation, cpu_kernel_decoder

    compilation.load()
    return cpu_kernel_decoder
