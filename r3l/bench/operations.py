"""Floating-point operations of matrix products: torch's, which it counts, and those of r3l.local.kernels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
from torch.utils.flop_counter import FlopCounterMode

from r3l.local import kernels

KINDS = {  # by the beginnings of their names: on a GPU attention and its backward pass have several kernels
    "linear": ("mm", "addmm"),
    "attention": ("bmm", "baddbmm", "_scaled_dot_product"),
}
PRODUCTS = {"attend": 2, "attend_tree": 2, "attend_tree_backward": 5}  # of a query's size with the keys that it sees


@contextmanager
def counted() -> Iterator[dict[str, int]]:
    """Operations of what runs inside, there when it has ended: of weights (``linear``), and of queries, keys and values
    (``attention``)."""
    counts: dict[str, int] = {}
    of_kernels: list[int] = []
    with FlopCounterMode(display=False) as of_torch, ExitStack() as stack:
        for name, products in PRODUCTS.items():
            counting = _counting(getattr(kernels, name), name == "attend", products, of_kernels)
            stack.enter_context(patch.object(kernels, name, counting))
        yield counts
    flop = {operation.__name__: count for operation, count in of_torch.get_flop_counts().get("Global", {}).items()}
    counts |= {
        kind: sum(count for name, count in flop.items() if name.startswith(beginnings))
        for kind, beginnings in KINDS.items()
    }
    counts["attention"] += sum(of_kernels)


def _counting(kernel: Any, over_caches: bool, products: int, counts: list[int]) -> Any:
    def called(*arguments: Any) -> None:
        counts.append(products * _of_product(over_caches, *arguments))
        kernel(*arguments)

    return called


def _of_product(over_caches: bool, queries_N_H_D: Any, _: Any, __: Any, *rows: Any) -> int:
    """Of each query with the keys that it sees, by the arguments of a kernel."""
    if over_caches:  # rows of the cache, what they held, where their new tokens end
        _, starts_K, ends_K, *_ = rows
        stops_K = starts_K + np.diff(ends_K, prepend=0)
    else:  # where paths end, and where their own nodes start
        ends_K, starts_K, *_ = rows
        stops_K = np.diff(ends_K, prepend=0)
    seen = sum(sum(range(start + 1, stop + 1)) for start, stop in zip(starts_K.tolist(), stops_K.tolist(), strict=True))
    return int(2 * seen * np.prod(queries_N_H_D.shape[1:]))
