"""The packed pass with our attention kernels (``cpu_attention``) on a CPU: a decoder and a prefix tree.

Why our own kernels: at the size of a nano model torch spends more time between its operations than in them.
Attention by torch gathers keys of padded blocks, writes scores to memory and reads them again for softmax,
for every layer and token. The kernels read only the columns that a query sees, and use each number that they
read for four queries. Without them a step took 1.0 to 1.2 times as long on a Zen 4 processor, 1.2 to 1.65
times on one with AVX-512 (results/notebook, medians of 5 steps of six cells, oneDNN included).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from r3l.local.cpu import mkl_below, padded_rows
from r3l.local.kernels import cpu_attention
from r3l.local.sampling.packed_decoding import NewTokens, PackedDecoder, RowCache, rounded_up
from r3l.local.training.prefix_tree import PrefixTree


class KernelCache(RowCache):
    """RowCache in the memory layout that the CPU kernels read: (D, T) for each head instead of (T, D).

    T, the number of columns, is a multiple of LANES (16).
    """

    def _memory(self, shape: Sequence[int]) -> torch.Tensor:
        *rows, columns, size = shape
        by_dimension = super()._memory((*rows, size, rounded_up(columns, cpu_attention.LANES)))
        return by_dimension.transpose(-1, -2)


class KernelTokens:
    """NewTokens (of prompts or responses) that attend over a KernelCache by our compiled CPU kernel.

    ``tokens[k]``: the new tokens of row ``rows[k]``. Creating one lengthens those rows. ``ids_N`` is
    padded with zeros to one of few lengths (r3l.local.cpu:padded_rows). ``all_wanted``: the logits of all of
    them are read, else of each row's last.
    """

    def __init__(
        self,
        cache: RowCache,
        rows: Sequence[int],
        tokens: Sequence[Sequence[int]],
        all_wanted: bool = False,
    ) -> None:
        counts = np.array([len(of_row) for of_row in tokens])
        self._layers = cache.layers.transpose(-1, -2).numpy()
        self._rows_K = np.array(rows)
        self._starts_K = np.array([cache.lengths[row] for row in rows])
        self._ends_K = counts.cumsum()  # among the packed tokens
        new = int(self._ends_K[-1])
        # Padding to a number of tokens that other steps have too: oneDNN writes code for each shape
        # (r3l.local.cpu).
        self.ids_N = torch.zeros(padded_rows(new), dtype=torch.int64)
        self.ids_N[:new] = torch.tensor([token for of_row in tokens for token in of_row])
        before_K = self._starts_K - (self._ends_K - counts)
        self.positions_N = torch.zeros_like(self.ids_N)
        self.positions_N[:new] = torch.from_numpy(np.repeat(before_K, counts) + np.arange(new))
        wanted = np.arange(new) if all_wanted else self._ends_K - 1
        self.wanted_W = torch.from_numpy(wanted) if len(self.ids_N) > len(wanted) else None
        for row, count in zip(rows, counts.tolist(), strict=True):
            cache.lengths[row] += count

    def attend(self, layer: int, queries_N_H_D: torch.Tensor, states_N_2_G_D: torch.Tensor) -> torch.Tensor:
        """Store the new keys and values in one layer's cache; return the new tokens' attention, (N, H * D).

        Each token attends to all tokens of its row up to itself.
        """
        queries = queries_N_H_D.contiguous()  # for another layout numba would compile the kernel again
        attended = torch.zeros(queries.shape)
        new = (queries.numpy(), states_N_2_G_D.numpy())
        rows = (self._rows_K, self._starts_K, self._ends_K)
        cpu_attention.attend(*new, self._layers[layer], *rows, attended.numpy())
        return attended.flatten(1)


class KernelDecoder(PackedDecoder):
    """PackedDecoder on a CPU whose attention is our compiled kernel.

    Rows of finished responses cost nothing here, since only live ones get a new token.
    """

    caches = KernelCache
    appended = KernelTokens
    grows = False  # the kernels read the part of a row that is filled, so a cache of full size costs no time
    columns_by = 1

    def _next(self, tokens: Sequence[Sequence[int]]) -> torch.Tensor:
        return self._logits(KernelTokens(self.row_cache, self.rows, tokens, all_wanted=True))

    def _logits(self, new: NewTokens) -> torch.Tensor:
        with mkl_below(len(new.ids_N)):
            return super()._logits(new)


class KernelTree(PrefixTree):
    """A tree of token rows, computed once where they share a beginning (PrefixTree), with other attention.

    Its nodes attend by our compiled CPU kernels, forward and backward, instead of by torch.
    """

    def pad_nodes(self, nodes_W: np.ndarray) -> np.ndarray:
        """``nodes_W`` with its last node repeated, up to a length that other steps have too (padded_rows)."""
        return np.pad(nodes_W, (0, padded_rows(len(nodes_W)) - len(nodes_W)), mode="edge")

    def attend(self, layer: int, queries_N_H_D: torch.Tensor, states_N_2_G_D: torch.Tensor) -> torch.Tensor:
        """Attention of every node over the path from the root to it, shape (N, H * D); differentiable."""
        apply: Any = _TreeAttention.apply
        attended: torch.Tensor = apply(queries_N_H_D, states_N_2_G_D, self._rows)
        return attended.flatten(1)

    def _plan_attention(self, starts: np.ndarray, device: torch.device) -> None:
        """Join all paths; keep the end of each, and the position of each row's first own node."""
        # Nodes that no path has are padding, up to a number of rows that other steps have too.
        more = padded_rows(len(self.ids_N)) - len(self.ids_N)
        self.ids_N = torch.nn.functional.pad(self.ids_N, (0, more))
        self.positions_N = torch.nn.functional.pad(self.positions_N, (0, more))
        self._rows = (np.concatenate(self.paths), np.cumsum([len(path) for path in self.paths]), starts)


class _TreeAttention(torch.autograd.Function):
    """The kernels over a tree as one operation of torch's autograd."""

    @staticmethod
    def forward(ctx: Any, queries: torch.Tensor, states: torch.Tensor, rows: Any) -> torch.Tensor:
        """Attention of all nodes, (N, H, D); ``rows``: paths, their ends and starts (attend_tree)."""
        queries = queries.contiguous()
        states = states.contiguous()
        attended = torch.zeros_like(queries)
        cpu_attention.attend_tree(*_arrays(queries, states), *rows, *_arrays(attended))
        ctx.save_for_backward(queries, states, attended)
        ctx.rows = rows
        return attended

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Gradients of queries and of states; None for ``rows``, which are indices."""
        queries, states, attended = ctx.saved_tensors
        of_queries = torch.zeros_like(queries)
        of_states = torch.zeros_like(states)
        of_result = _arrays(attended, gradients[0].contiguous())
        cpu_attention.attend_tree_backward(
            *_arrays(queries, states), *ctx.rows, *of_result, *_arrays(of_queries, of_states)
        )
        return of_queries, of_states, None


def _arrays(*tensors: torch.Tensor) -> list[np.ndarray]:
    """Numpy views of ``tensors``, which the kernels read and write."""
    return [tensor.detach().numpy() for tensor in tensors]
