"""Which library multiplies float32 matrices on a CPU, and matrices of few heights for it.

torch asks MKL, which uses half of an AMD processor's vectors; oneDNN, which torch has too, is twice as fast there from
some 16 rows on (docs/engine.md). torch lets it have float32 products only where it may round them to bfloat16, of which
oneDNN makes use on processors with AMX alone; whether it computes in float32 here is tried, not guessed.

oneDNN writes code for each shape it meets, which takes half a millisecond. So matrices of many rows get more of them,
up to a multiple that others share.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch

_mkldnn: Any = torch.backends.mkldnn  # torch's types do not know its attribute matmul

FEW = 16  # rows; below, what oneDNN does before it begins costs more than it saves
TOLERANCE = 1e-5  # of a product, relative to its largest number; float32 errs by 1e-7, bfloat16 by 1e-3


def use_onednn(wanted: bool) -> None:
    """Let oneDNN have the float32 products of this process from now on where it computes them in float32; or not."""
    _allow(wanted and is_exact())


@contextmanager
def of_height(rows: int) -> Iterator[None]:
    """MKL's for what is inside where there are few ``rows``."""
    before = _mkldnn.matmul.fp32_precision
    if rows < FEW:
        _allow(False)
    try:
        yield
    finally:
        _mkldnn.matmul.fp32_precision = before


def heightened(rows: int) -> int:
    """``rows`` or some more, at most a sixteenth: all counts up to 32, and 16 from a power of two to the next."""
    step = 1 << max(0, (rows - 1).bit_length() - 5)
    return -(-rows // step) * step


@cache
def is_exact() -> bool:
    """Whether oneDNN's float32 products are float32's on this machine."""
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(64, 192, generator=generator) for _ in range(2))
    before = _mkldnn.matmul.fp32_precision
    _allow(True)
    product, exact = left @ right.T, left.double() @ right.double().T
    _mkldnn.matmul.fp32_precision = before
    return bool((product - exact).abs().max() < TOLERANCE * exact.abs().max())


def _allow(rounding: bool) -> None:
    _mkldnn.matmul.fp32_precision = "bf16" if rounding else "ieee"
