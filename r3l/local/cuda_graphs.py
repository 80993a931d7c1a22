"""Decoding on a GPU by CUDA graphs: one more token of every row is launched at once, not as hundreds of operations.

Launching those took 15 ms a token for Qwen2.5-0.5B on an H100; the graph of 64 rows takes 5.4 (docs/engine.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from r3l.local import forward
from r3l.local.packed_decoding import AppendedColumn, PackedDecoder, RowCache
from r3l.local.precision import vocabulary_logits, vocabulary_projection

COLUMNS = 128  # that a graph's attention reads at most in vain; each further one takes a capture. Our choice


class GraphColumn(AppendedColumn):
    """One new token of every row, read from memory that stays where it is. Attention reads ``end`` columns."""

    def __init__(self, cache: RowCache, end: int) -> None:
        rows, device = len(cache.lengths), cache.layers.device
        self._layers, self._end = cache.layers, end
        self._new_2_N = torch.zeros(2, rows, dtype=torch.long, device=device)
        self.ids_N, self.positions_N = self._new_2_N
        self._rows_N = torch.arange(rows, device=device)

    def put(self, tokens: Sequence[int], positions: Sequence[int]) -> None:
        """What the next replay reads."""
        self._new_2_N.copy_(torch.tensor([tokens, positions]))


class Graph:
    """The forward pass of one more token of every row of ``cache``, captured; replayed while that cache stays."""

    def __init__(self, model: Any, cache: RowCache, end: int, pool: Any) -> None:
        self._column = column = GraphColumn(cache, end)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, pool=pool):
            column.hide_later()
            hidden = forward.hidden_states(model, column.ids_N, column.positions_N, column.attend)
            self._logits = vocabulary_logits(hidden, *vocabulary_projection(model)).double()

    def logits(self, tokens: Sequence[int], positions: Sequence[int]) -> torch.Tensor:
        """After those tokens, float64, shape (B, V); overwritten by the next call."""
        self._column.put(tokens, positions)
        self._graph.replay()
        return self._logits


class GraphDecoder(PackedDecoder):
    """PackedDecoder whose steps are graphs: one for each set of rows and each ``COLUMNS`` of the longest dialog."""

    columns_by = COLUMNS
    rows_left = 0.5  # fewer captures than on a CPU, where finished rows cost more

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._graphs: dict[int, Graph] = {}
        self._pool = torch.cuda.graph_pool_handle()

    def _column_logits(self, tokens: Sequence[int]) -> torch.Tensor:
        lengths = self.row_cache.lengths
        end = -(-(max(lengths) + 1) // COLUMNS) * COLUMNS
        if end not in self._graphs:
            self._graphs[end] = Graph(self.model, self.row_cache, end, self._pool)
        self.counts["forwards"] += 1
        return self._graphs[end].logits(tokens, lengths)

    def _moved(self) -> None:
        self._graphs.clear()  # they read where the caches lay
        self._pool = torch.cuda.graph_pool_handle()  # torch gives up a pool with its last graph
