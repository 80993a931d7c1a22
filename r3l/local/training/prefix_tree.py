"""Prefix tree of the rows of a micro-batch: each distinct beginning is computed once.

The attempts of a group share their prompt, and a retry shares its base attempt up to the pivot. In a causal
model the hidden states of a token depend on nothing after it, so rows with the same first k tokens have the
same hidden states there, and the gradients of everything that reads them add up there. So the rows' tokens
form a tree (a trie). Its nodes are computed once, forward and backward, packed side by side
(``r3l.local.model.forward``). A row is a path in the tree, and a node attends over the path that leads to
it.

Rows are taken in the order of their token ids (``in_tree_order``), in which a row shares its longest
beginning with the row before it. So the nodes that no earlier row has are the last ones of a row's path, and
they are contiguous. Attention needs no more than that: the path of each row, and the position from which its
nodes are its own.

The result is exact but for rounding: sums run over the same terms in another order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from r3l.config.gpu_memory import GPU_BLOCK
from r3l.core.batching import common_length, in_tree_order
from r3l.local.model.forward import attention

# Positions of a block on a CPU: queries of a block attend together, and no key after it is read. The fastest
# of 32, 64 and 128.
BLOCK = 64


class PrefixTree:
    """Tree (trie) of ``rows``, arrays of token ids, in which common beginnings exist, and are computed, once.

    A node is a token after a certain prefix. ``rows``: at least one. ``ids_N``, ``positions_N``: token id and
    position of each of the N nodes. ``paths``: for each row, in the given order, the node indices of its
    tokens.
    """

    def __init__(self, rows: Sequence[np.ndarray], device: torch.device) -> None:
        self.paths: list[np.ndarray] = [np.zeros(0, dtype=np.int64)] * len(rows)
        starts = [0] * len(rows)  # position of the first token that no earlier row has
        ids: list[np.ndarray] = []
        positions: list[np.ndarray] = []
        nodes = 0
        previous: int | None = None
        for row in in_tree_order(rows):
            # Up to `start` the path equals the path of the row before; every later token becomes a new node.
            start = 0 if previous is None else common_length(rows[previous], rows[row])
            shared = self.paths[previous][:start] if previous is not None else self.paths[row]
            own = len(rows[row]) - start
            self.paths[row] = np.concatenate([shared, np.arange(nodes, nodes + own)])
            ids.append(rows[row][start:])
            positions.append(np.arange(start, len(rows[row])))
            starts[row] = start
            nodes += own
            previous = row
        self.ids_N = torch.from_numpy(np.concatenate(ids).astype(np.int64)).to(device)
        self.positions_N = torch.from_numpy(np.concatenate(positions)).to(device)
        self._plan_attention(np.array(starts), device)

    def pad_nodes(self, nodes_W: np.ndarray) -> np.ndarray:
        """``nodes_W``, the nodes whose last hidden states are wanted; a subclass may append padding to it."""
        return nodes_W

    def attend(self, layer: int, queries_N_H_D: torch.Tensor, states_N_2_G_D: torch.Tensor) -> torch.Tensor:
        """Attention of every node over the path from the root to it, itself included, shape (N, H * D).

        H query heads, G key-value heads, D dimensions; ``states_N_2_G_D``: key and value of each node. Part
        of the interface of forward.hidden_states; ``layer`` is unused, since a tree has no cache.
        """
        nodes, *query_shape = queries_N_H_D.shape
        queries = queries_N_H_D.reshape(nodes, -1)
        states = states_N_2_G_D.reshape(nodes, -1)
        attended = []
        for queries_R_C, keys_R_T, bias in self._blocks:
            # Gather by index; in the backward pass the gradients of a node that rows share add up here.
            gathered = torch.nn.functional.embedding(keys_R_T, states)
            of_rows = gathered.view(*keys_R_T.shape, *states_N_2_G_D.shape[1:])
            keys, values = of_rows.permute(2, 0, 3, 1, 4).unbind(0)
            block_queries = torch.nn.functional.embedding(queries_R_C, queries)
            block_queries = block_queries.view(*queries_R_C.shape, *query_shape)
            attended.append(attention(block_queries, keys, values, bias).flatten(0, 1))
        return torch.cat(attended).index_select(0, self._result_of_N)

    def _plan_attention(self, starts: np.ndarray, device: torch.device) -> None:
        """Cut the rows into blocks of positions: nodes of queries (R, C) and keys (R, T), and a causal bias.

        ``starts``: for each row the position of its first own node.
        """
        self._blocks: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
        result_of_N = np.zeros(len(self.ids_N), dtype=np.int64)  # index among the results of all blocks
        results = 0
        longest = max(map(len, self.paths))
        block = BLOCK if device.type == "cpu" else GPU_BLOCK
        for first in range(0, longest, block):
            # Only rows with own nodes in this block have queries: an earlier row computes shared nodes.
            end = first + block
            rows = [k for k, path in enumerate(self.paths) if starts[k] < min(end, len(path)) > first]
            if not rows:
                continue
            last = min(end, max(len(self.paths[k]) for k in rows))
            # Keys are the paths from their beginning. A shorter path is padded with node 0: the bias hides
            # it from the row's own queries, whose positions are all before it.
            keys_R_T = np.zeros((len(rows), last), dtype=np.int64)
            for line, k in zip(keys_R_T, rows, strict=True):
                line[: len(self.paths[k])] = self.paths[k][:last]
            # Queries are all positions of the block, shared nodes too (a rectangle is one product);
            # only the results of own nodes are read.
            for index, k in enumerate(rows):
                own = np.arange(max(first, starts[k]), min(last, len(self.paths[k])))
                result_of_N[self.paths[k][own]] = results + index * (last - first) + own - first
            results += len(rows) * (last - first)
            keys = torch.from_numpy(keys_R_T).to(device)
            bias_C_T = torch.full((last - first, last), -torch.inf, device=device).triu(first + 1)
            self._blocks.append((keys[:, first:].contiguous(), keys, bias_C_T[None]))
        self._result_of_N = torch.from_numpy(result_of_N).to(device)
