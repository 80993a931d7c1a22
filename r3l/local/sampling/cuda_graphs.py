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
from r3l.local.model.forward import sampled_logits
from r3l.local.sampling.packed_decoding import (
    GROWTH,
    AppendedColumns,
    PackedDecoder,
    RowCache,
    Storage,
    rounded_up,
)

# Our choices:
ROWS = 8  # batches have a multiple of so many rows; fewer take as long
PLENTY = 0.5  # share of the GPU's memory below which caches and graphs stay while the model is trained


class GraphStorage(Storage):
    """Storage on a GPU that also keeps the CUDA graphs which read this memory, from batch to batch.

    Memory and graphs are dropped when a batch or training needs more memory.
    """

    def __init__(self) -> None:
        super().__init__()
        self._graphs: dict[tuple[int, ...], Graph] = {}
        self._logits: torch.Tensor | None = None
        self._pool: Any = None

    def take(self, shape: Sequence[int], like: Any) -> torch.Tensor:
        """The buffer as a tensor of ``shape``, with type and device of the model ``like``.

        A buffer that is too small is replaced. All captured graphs are then dropped, since they point into
        the old one, and must be captured again.
        """
        if self._flat is not None and len(self._flat) < math.prod(shape):
            self.clear()
        return super().take(shape, like)

    def graph(self, model: Any, cache: RowCache, end: int) -> Graph:
        """The CUDA graph that decodes one token per row of ``cache``, attending to the first ``end`` columns.

        It is captured at the first call for a shape and ``end``.
        """
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
        """Free buffer and graphs for training, unless the GPU has plenty of memory.

        It has plenty if the peak of allocated memory so far and the buffer together are below half of the
        GPU's memory (PLENTY).
        """
        # The need of training is known: the peak so far includes the largest micro-batch
        # (Trainer.probe_memory).
        if self._flat is None or self._flat.device.type != "cuda":
            return
        _, whole = torch.cuda.mem_get_info(self._flat.device)
        if torch.cuda.max_memory_allocated(self._flat.device) + self._flat.nbytes > PLENTY * whole:
            self.clear()

    def clear(self) -> None:
        """Drop all graphs and the buffer."""
        self._graphs.clear()
        self._flat = None
        self._logits = None
        self._pool = None  # torch gives up a pool with its last graph


class GraphCache(RowCache):
    """RowCache with some more, empty rows, so that fewer numbers of rows need their own CUDA graph.

    The number of rows is rounded up to a multiple of 8; above 64 rows, by a quarter at most.
    """

    def __init__(self, rows: int, columns: int, like: Any, storage: Storage) -> None:
        super().__init__(_rounded(rows), columns, like, storage)

    def keep_rows(self, rows: Sequence[int]) -> None:
        """Keep only the rows with these indices, in this order, and append rows of length 0 as padding.

        The number of rows is rounded up to the next size that graphs have: a multiple of 8, above 64 of 16,
        above 128 of 32, and so on.
        """
        # The padding has the memory of row 0, which is never read.
        extra = [0] * (_rounded(len(rows)) - len(rows))
        super().keep_rows([*rows, *extra])
        self.lengths[len(rows) :] = extra


class GraphColumn(AppendedColumns):
    """AppendedColumns with one new token per row, in memory whose address never changes, for a CUDA graph.

    ``end``: number of columns of the cache that attention reads.
    """

    def __init__(self, cache: RowCache, end: int) -> None:
        rows = len(cache.lengths)
        device = cache.layers.device
        self._layers = cache.layers
        self._end = end
        self._new_2_N = torch.zeros(2, rows, dtype=torch.long, device=device)
        self.ids_N, self.positions_N = self._new_2_N
        self._rows_N = torch.arange(rows, device=device)

    def put(self, tokens: Sequence[int], positions: Sequence[int]) -> None:
        """Set the token and the position of every row, which the next replay of the graph reads."""
        self._new_2_N.copy_(torch.tensor([tokens, positions]))


class Graph:
    """CUDA graph of the forward pass that decodes one token per row of ``cache``, captured at creation.

    Attention reads ``end`` columns; logits are written to ``logits_B_V``; ``pool``: memory pool of
    torch.cuda. Valid while the cache's memory stays. On a CPU (for tests) the pass is computed directly.
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
        """Decode ``tokens``, one per row at these ``positions``: logits after them, float64, shape (B, V).

        The next call overwrites the returned tensor.
        """
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
    """PackedDecoder on a GPU that decodes sampled tokens by CUDA graphs; prompts are encoded without.

    There is one graph per number of rows and per GROWTH (128) columns.
    """

    caches = GraphCache
    grows = False  # a graph reads memory with a fixed address
    rows_left = 0.5  # lower than on a CPU, since each number of rows needs its own graphs
    storage: GraphStorage

    def _column_logits(self, tokens: Sequence[Sequence[int]], wanted_W: torch.Tensor | None) -> torch.Tensor:
        lengths = self.row_cache.lengths
        end = rounded_up(max(lengths) + 1, GROWTH)
        self.counts["forwards"] += 1
        return self.storage.graph(self.model, self.row_cache, end).logits(
            [token for (token,) in tokens], lengths
        )


def _rounded(rows: int) -> int:
    """``rows`` rounded up to a multiple of 8; above 64, to 4 numbers per doubling (80, 96, 112, 128 ...)."""
    step = max(ROWS, 1 << max(0, (rows - 1).bit_length() - 3))
    return rounded_up(rows, step)
