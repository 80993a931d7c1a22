"""Matrix products of a benchmark: their floating-point operations and the bytes that they move."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry


class ProductCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts torch's matrix products in a `with` block, backward passes included.

    ``flop``: floating-point operations (2 n m k for a product of n x k and k x m). ``bytes``: size of all
    inputs and outputs, as if each were read or written once. Attention in machine code and the replay of a
    CUDA graph are no operations of torch, so they are not counted. A block may be entered again; counts add
    up.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flop = 0
        self.bytes = 0

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run the operation ``func`` of torch, and count it if it is a product."""
        named = kwargs or {}
        counted: Callable[..., int] | None = flop_registry.get(func._overloadpacket)
        if counted is None:
            # In inference mode `linear` arrives as one operation: its parts come back here.
            with self:
                parts = func.decompose(*args, **named)
            return func(*args, **named) if parts is NotImplemented else parts
        out = func(*args, **named)
        self.flop += counted(*args, **named, out_val=out)
        self.bytes += sum(t.nbytes for t in (*args, *named.values(), out) if isinstance(t, torch.Tensor))
        return out
