"""The check that numbers are finite, called in all places where a non-finite one could first appear."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from r3l.core.errors import NonFiniteError

if TYPE_CHECKING:
    import torch  # importing it takes seconds; readers of results and clients of servers do not need it


def check_finite(name: str, values: float | Sequence[float] | np.ndarray | torch.Tensor) -> None:
    """Raise NonFiniteError if a value is infinite or NaN; ``name`` says what the values are and where."""
    is_tensor = hasattr(values, "isfinite")  # stays on its device
    numbers: Any = values if is_tensor else np.asarray(values, dtype=np.float64)
    finite = numbers.isfinite() if is_tensor else np.isfinite(numbers)
    if not finite.all():
        raise NonFiniteError(f"{name} is {numbers[~finite][0].item()}")


def check_rows_finite(name: str, rows: Sequence[str], values_B_T: torch.Tensor) -> None:
    """Raise NonFiniteError if a value is infinite or NaN, naming the first row that has one.

    ``rows``: a name for each of the B rows, for the message.
    """
    # One operation for all rows, so that a GPU is waited for only once.
    if not values_B_T.isfinite().all():
        for row, values_T in zip(rows, values_B_T, strict=True):
            check_finite(f"{name} of {row}", values_T)
