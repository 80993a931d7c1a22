"""Rows that begin alike share what they have in common: each distinct beginning is computed once.

The attempts of a group share their prompt, a retry its base attempt up to the pivot. In a causal model a token's hidden
states depend on nothing after it, so rows with the same first k tokens have the same hidden states there, and what
reads them adds up its gradients there. So the rows' tokens form a tree (a trie): its nodes are computed once, forward
and backward, packed side by side (``model.forward``); a row is a path in it, and a node attends over the path to it.

The rows are taken in the order of their tokens (``in_tree_order``), in which a row shares its longest beginning with
the row before it; so each row's own nodes, those that no row before it has, are its last ones and are contiguous. That
is all that attention needs to know: of each row the path, and from where on it is its own.
Exact but for rounding: sums run over the same terms in another order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from r3l.config.gpu_memory import GPU_BLOCK
from r3l.core.batching import common_length, in_tree_order
from r3l.local.model.forward import attention

# Queries of a row that attend together on a CPU: no key after a block is read. Measured best of 32, 64, 128.
BLOCK = 64


class PrefixTree:
    """The tree of ``rows``: token ids of shape (T,) each.

    ``ids_N`` and ``positions_N`` are its nodes', ``paths`` the nodes of each row's tokens, in the order of ``rows``.
    """

    def __init__(self, rows: Sequence[np.ndarray], device: torch.device) -> None:
        self.paths: list[np.ndarray] = [np.zeros(0, dtype=np.int64)] * len(rows)
        starts = [0] * len(rows)  # the first token of a row that no row before it in the order has
        ids: list[np.ndarray] = []
        positions: list[np.ndarray] = []
        nodes, previous = 0, None
        for row in in_tree_order(rows):
            start = 0 if previous is None else common_length(rows[previous], rows[row])
            shared = self.paths[previous][:start] if previous is not None else self.paths[row]
            own = len(rows[row]) - start
            self.paths[row] = np.concatenate([shared, np.arange(nodes, nodes + own)])
            ids.append(rows[row][start:])
            positions.append(np.arange(start, len(rows[row])))
            starts[row], nodes, previous = start, nodes + own, row
        self.ids_N = torch.from_numpy(np.concatenate(ids).astype(np.int64)).to(device)
        self.positions_N = torch.from_numpy(np.concatenate(positions)).to(device)
        self._prepare(np.array(starts), device)

    def wanted(self, nodes_W: np.ndarray) -> np.ndarray:
        """``nodes_W``, whose hidden states are wanted, and what may be computed after them."""
        return nodes_W

    def attend(self, layer: int, queries_N_H_D: torch.Tensor, states_N_2_G_D: torch.Tensor) -> torch.Tensor:
        """Every node's attention over the path to it, shape (N, H * D)."""
        nodes, *query_shape = queries_N_H_D.shape
        queries, states = queries_N_H_D.reshape(nodes, -1), states_N_2_G_D.reshape(nodes, -1)
        attended = []
        for queries_R_C, keys_R_T, bias in self._blocks:
            of_rows = torch.nn.functional.embedding(keys_R_T, states).view(*keys_R_T.shape, *states_N_2_G_D.shape[1:])
            keys, values = of_rows.permute(2, 0, 3, 1, 4).unbind(0)
            asking = torch.nn.functional.embedding(queries_R_C, queries).view(*queries_R_C.shape, *query_shape)
            attended.append(attention(asking, keys, values, bias).flatten(0, 1))
        return torch.cat(attended).index_select(0, self._answers_N)

    def _prepare(self, starts: np.ndarray, device: torch.device) -> None:
        """Queries (R, C) and keys (R, T) of each block of positions, as nodes, with the bias; where the nodes' answers
        lie among those of all blocks."""
        self._blocks: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
        answers_N = np.zeros(len(self.ids_N), dtype=np.int64)
        longest, before = max(map(len, self.paths)), 0
        block = BLOCK if device.type == "cpu" else GPU_BLOCK
        for first in range(0, longest, block):
            asking = [k for k, path in enumerate(self.paths) if starts[k] < min(first + block, len(path)) > first]
            if not asking:
                continue
            last = min(first + block, max(len(self.paths[k]) for k in asking))
            keys_R_T = np.zeros((len(asking), last), dtype=np.int64)
            for line, k in zip(keys_R_T, asking, strict=True):
                line[: len(self.paths[k])] = self.paths[k][:last]
            for place, k in enumerate(asking):
                own = np.arange(max(first, starts[k]), min(last, len(self.paths[k])))
                answers_N[self.paths[k][own]] = before + place * (last - first) + own - first
            before += len(asking) * (last - first)
            keys = torch.from_numpy(keys_R_T).to(device)
            bias_C_T = torch.full((last - first, last), -torch.inf, device=device).triu(first + 1)
            self._blocks.append((keys[:, first:].contiguous(), keys, bias_C_T[None]))
        self._answers_N = torch.from_numpy(answers_N).to(device)
