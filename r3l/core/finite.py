"""Numbers must be finite: the one check, at every place where one could first be otherwise."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from r3l.core.errors import NonFiniteError

Numbers = float | Sequence[float] | np.ndarray | torch.Tensor


def check_finite(name: str, values: Numbers) -> None:
    """Raises NonFiniteError where one of ``values`` is infinite or not a number; ``name`` says what and where it is."""
    tensor = values if isinstance(values, torch.Tensor) else torch.tensor(values, dtype=torch.float64)
    finite = torch.isfinite(tensor)
    if not finite.all():
        raise NonFiniteError(f"{name} is {tensor[~finite][0].item()}")


def check_rows_finite(name: str, rows: Sequence[str], values_B_T: torch.Tensor) -> None:
    """:func:`check_finite` of all rows at once, which a GPU does in one go; the error names the first bad one."""
    if not torch.isfinite(values_B_T).all():
        for row, values_T in zip(rows, values_B_T, strict=True):
            check_finite(f"{name} of {row}", values_T)
