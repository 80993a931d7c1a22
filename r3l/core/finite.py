"""Numbers must be finite: the one check, at every place where one could first be otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from r3l.core.errors import NonFiniteError

if TYPE_CHECKING:
    import torch  # takes seconds; who reads results or asks a server needs none of it


def check_finite(name: str, values: float | Sequence[float] | np.ndarray | torch.Tensor) -> None:
    """Raises NonFiniteError where one of ``values`` is infinite or not a number; ``name`` says what and where it is."""
    is_tensor = hasattr(values, "isfinite")  # on whatever device
    numbers: Any = values if is_tensor else np.asarray(values, dtype=np.float64)
    finite = numbers.isfinite() if is_tensor else np.isfinite(numbers)
    if not finite.all():
        raise NonFiniteError(f"{name} is {numbers[~finite][0].item()}")


def check_rows_finite(name: str, rows: Sequence[str], values_B_T: torch.Tensor) -> None:
    """:func:`check_finite` of all rows at once, which a GPU does in one go; the error names the first bad one."""
    if not values_B_T.isfinite().all():
        for row, values_T in zip(rows, values_B_T, strict=True):
            check_finite(f"{name} of {row}", values_T)
