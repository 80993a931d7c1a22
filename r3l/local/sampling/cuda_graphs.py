"""Decoding on a GPU by CUDA graphs: one more token of every row is one launch, not hundreds of operations.

Launching the operations took 15 ms a token for Qwen2.5-0.5B on an H100; the graph of 64 rows takes 5.4 ms
(results/notebook). Capturing a graph takes as long as several tokens, and an episode has many short turns.
So graphs, and the memory that they read, are reused by one batch after another. Batches match more often
since their number of rows is rounded up, by a quarter at most.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from r3l.local.model import forward
from r3l.local.model.precision import sampled_logits
from r3l.local.sampling.packed_decoding import (
    GROWTH,
    AppendedColumn,
    PackedDecoder,
    RowCache,
    Storage,
    rounded_up,
)

# Our choices:
ROWS = 8  # batches have a multiple of so many rows; fewer take as long
PLENTY = 0.5  # share of the GPU's memory below which caches and graphs stay while the model is trained


class GraphStorage(Storage):
    """Memory of the caches on a GPU and the CUDA graphs that read it.

    It is kept until a batch or training needs more memory.
    """

    def __init__(self) -> None:
        super().__init__()
        self._graphs: dict[tuple[int, ...], Graph] = {}
        self._logits: torch.Tensor | None = None
        self._pool: Any = None

    def take(self, shape: Sequence[int], like: Any) -> torch.Tensor:
        """Memory for caches as a tensor of ``shape``, used again at every call.

        A larger one than before takes new memory and drops all graphs, which point into the old.
        """
        if self._flat is not None and len(self._flat) < math.prod(shape):
            self.clear()
        return super().take(shape, like)

    def graph(self, model: Any, cache: RowCache, end: int) -> Graph:
        """CUDA graph that decodes one token per row of ``cache``; its attention reads ``end`` columns."""
        key = (*cache.layers.shape, end)
        if key not in self._graphs:
            # All graphs write float64 logits to the same memory and share one pool for what they compute in
            # between: only one of them runs at a time. A graph for more rows needs larger logits, so earlier
            # graphs are dropped.
            rows = cache.layers.shape[2]
            if self._logits is None or len(self._logits) < rows:
                self._graphs.clear()
                shape = (rows, model.config.vocab_size)
                self._logits = torch.zeros(shape, dtype=torch.float64, device=model.device)
                self._pool = torch.cuda.graph_pool_handle() if model.device.type == "cuda" else None
            self._graphs[key] = Graph(model, cache, end, self._logits[:rows], self._pool)
        return self._graphs[key]

    def release(self) -> None:
        """Free the memory for training, unless the GPU has enough for both.

        The need of training is known: the peak so far includes the largest micro-batch
        (Trainer.probe_memory).
        """
        if self._flat is None or self._flat.device.type != "cuda":
            return
        _, whole = torch.cuda.mem_get_info(self._flat.device)
        if torch.cuda.max_memory_allocated(self._flat.device) + self._flat.nbytes > PLENTY * whole:
            self.clear()

    def clear(self) -> None:
        """Drop all graphs and memory."""
        self._graphs.clear()
        self._flat = None
        self._logits = None
        self._pool = None  # torch gives up a pool with its last graph


class GraphCache(RowCache):
    """RowCache padded with empty dialogs to a number of rows for which a CUDA graph exists."""

    def __init__(self, rows: int, columns: int, like: Any, storage: Storage) -> None:
        super().__init__(_rounded(rows), columns, like, storage)

    def keep_rows(self, rows: Sequence[int]) -> None:
        """Keep only ``rows``, and pad with copies of row 0 that have length 0."""
        extra = [0] * (_rounded(len(rows)) - len(rows))
        super().keep_rows([*rows, *extra])
        self.lengths[len(rows) :] = extra


class GraphColumn(AppendedColumn):
    """One new token of every row, in memory whose address never changes, as a CUDA graph needs it."""

    def __init__(self, cache: RowCache, end: int) -> None:
        rows = len(cache.lengths)
        device = cache.layers.device
        self._layers = cache.layers
        self._end = end
        self._new_2_N = torch.zeros(2, rows, dtype=torch.long, device=device)
        self.ids_N, self.positions_N = self._new_2_N
        self._rows_N = torch.arange(rows, device=device)

    def put(self, tokens: Sequence[int], positions: Sequence[int]) -> None:
        """Write the tokens and positions that the next replay reads."""
        self._new_2_N.copy_(torch.tensor([tokens, positions]))


class Graph:
    """Captured forward pass that decodes one token per row of ``cache``.

    Valid while the cache's memory stays. On a CPU, for tests, a replay computes the pass again.
    """

    def __init__(self, model: Any, cache: RowCache, end: int, logits_B_V: torch.Tensor, pool: Any) -> None:
        self._model = model
        self._column = GraphColumn(cache, end)
        self._logits_B_V = logits_B_V
        self._graph = None
        if model.device.type == "cuda":
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph, pool=pool):
                self._compute()

    def logits(self, tokens: Sequence[int], positions: Sequence[int]) -> torch.Tensor:
        """Logits after the given token of each row, float64, shape (B, V); the next call overwrites them."""
        self._column.put(tokens, positions)
        if self._graph is None:
            self._compute()
        else:
            self._graph.replay()
        return self._logits_B_V

    def _compute(self) -> None:
        column = self._column
        column.hide_later()
        hidden = forward.hidden_states(self._model, column.ids_N, column.positions_N, column.attend)
        self._logits_B_V.copy_(sampled_logits(self._model, hidden))


class GraphDecoder(PackedDecoder):
    """PackedDecoder that decodes by CUDA graphs, one per number of rows and per ``GROWTH`` columns."""

    caches = GraphCache
    grows = False  # a graph reads memory with a fixed address
    rows_left = 0.5  # lower than on a CPU, since each number of rows needs graphs of its own
    storage: GraphStorage

    def _column_logits(self, tokens: Sequence[int]) -> torch.Tensor:
        lengths = self.row_cache.lengths
        end = rounded_up(max(lengths) + 1, GROWTH)
        self.counts["forwards"] += 1
        return self.storage.graph(self.model, self.row_cache, end).logits(tokens, lengths)


def _rounded(rows: int) -> int:
    """``rows`` or some more: a multiple of 8, from 64 on 4 numbers from a power of two to the next."""
    step = max(ROWS, 1 << max(0, (rows - 1).bit_length() - 3))
    return rounded_up(rows, step)
