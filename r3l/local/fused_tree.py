"""Attention over a tree of rows in one loop of machine code, forward and backward (r3l.local.kernels)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from r3l.local import kernels
from r3l.local.prefix_tree import PrefixTree
from r3l.local.products import heightened


class FusedTree(PrefixTree):
    """PrefixTree whose nodes attend by the kernels."""

    def wanted(self, nodes_W: np.ndarray) -> np.ndarray:
        """The last one again and again, up to a height that others have, too."""
        return np.pad(nodes_W, (0, heightened(len(nodes_W)) - len(nodes_W)), mode="edge")

    def attend(self, layer: int, queries_N_H_D: torch.Tensor, states_N_2_G_D: torch.Tensor) -> torch.Tensor:
        """As PrefixTree's."""
        attended: torch.Tensor = _Attention.apply(queries_N_H_D, states_N_2_G_D, self._rows)  # type: ignore[no-untyped-call]
        return attended.flatten(1)

    def _prepare(self, starts: np.ndarray, device: torch.device) -> None:
        """The nodes of all paths side by side, where each path ends among them, and where its own nodes start; nodes
        that nobody reads, up to a height that others have, too."""
        more = heightened(len(self.ids_N)) - len(self.ids_N)
        self.ids_N, self.positions_N = (
            torch.nn.functional.pad(of_N, (0, more)) for of_N in (self.ids_N, self.positions_N)
        )
        self._rows = (np.concatenate(self.paths), np.cumsum([len(path) for path in self.paths]), starts)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, queries: torch.Tensor, states: torch.Tensor, rows: Any) -> torch.Tensor:
        queries, states = queries.contiguous(), states.contiguous()
        attended = torch.zeros_like(queries)
        kernels.attend_tree(*_arrays(queries, states), *rows, *_arrays(attended))
        ctx.save_for_backward(queries, states, attended)
        ctx.rows = rows
        return attended

    @staticmethod
    def backward(ctx: Any, *slopes: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        queries, states, attended = ctx.saved_tensors
        of_queries, of_states = torch.zeros_like(queries), torch.zeros_like(states)
        of_result = _arrays(attended, slopes[0].contiguous())
        kernels.attend_tree_backward(*_arrays(queries, states), *ctx.rows, *of_result, *_arrays(of_queries, of_states))
        return of_queries, of_states, None


def _arrays(*tensors: torch.Tensor) -> list[np.ndarray]:
    return [tensor.detach().numpy() for tensor in tensors]
