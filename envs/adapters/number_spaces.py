"""Actions of numbers: gymnasium's Box, MultiBinary and MultiDiscrete spaces, described and parsed."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

NUMBER_SPACES = ("Box", "MultiBinary", "MultiDiscrete")


def described_numbers(space: Any) -> str:
    """The numbers of an action in a Box, MultiBinary or MultiDiscrete ``space``, as a text for the model.

    It names one range if all numbers share it ("2 numbers from -1 to 1"), else the range of each in order.
    Other spaces are not refused here.
    """
    low, high = _bounds(space)
    ranges = [f"{a:g} to {b:g}" for a, b in zip(low, high, strict=True)]
    kind = "whole number" if np.issubdtype(space.dtype, np.integer) else "number"
    if len(ranges) != 1:
        kind += "s"
    if len(set(ranges)) == 1:
        return f"{len(ranges)} {kind} from {ranges[0]}"
    return f"{len(ranges)} {kind}: {', '.join(ranges)}"


def read_numbers(action: str, space: Any) -> np.ndarray | None:
    """Parse an action such as ``0.5 -1`` or ``[0.5, -1]`` as an array of ``space``'s shape and type.

    None if it is no element of ``space``: not numbers, too many or too few, out of range, or not whole; also
    if one is infinite in ``space``'s type, even if its range has no end.
    """
    parts = re.sub(r"[\[\],]", " ", action).split()
    low, high = _bounds(space)
    try:
        values = np.array([float(part) for part in parts])
    except ValueError:
        return None
    if values.shape != low.shape or not np.all((low <= values) & (values <= high)):
        return None
    if np.issubdtype(space.dtype, np.integer) and np.any(values != np.round(values)):
        return None
    with np.errstate(over="ignore"):
        array = values.astype(space.dtype).reshape(space.shape)
    return array if space.contains(array) and np.all(np.isfinite(array)) else None


def _bounds(space: Any) -> tuple[np.ndarray, np.ndarray]:
    """(lowest, highest) of each number in a space, in one dimension."""
    if hasattr(space, "nvec"):
        return space.start.ravel(), (space.start + space.nvec - 1).ravel()
    if hasattr(space, "low"):
        return space.low.ravel(), space.high.ravel()
    size = int(np.prod(space.shape))
    return np.zeros(size), np.ones(size)
