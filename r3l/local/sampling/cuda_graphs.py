"""Decoding on a GPU by CUDA graphs: one more token of every row is launched at once, not as hundreds of operations.

Launching those took 15 ms a token for Qwen2.5-0.5B on an H100; the graph of 64 rows takes 5.4 (results/notebook).
Capturing one takes as long as several tokens, and an episode has many short turns: so graphs, and the memory that they
read, serve one batch after another. For that the rows of a batch are rounded up, by a quarter at most.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from r3l.local.model import forward
from r3l.local.model.precision import sampled_logits
from r3l.local.sampling.packed_decoding import GROWTH, AppendedColumn, PackedDecoder, RowCache, Storage, rounded_up

ROWS = 8  # and multiples of it: fewer take as long. Our choice
PLENTY = 0.5  # of a GPU's memory: what training may need where caches and graphs stay beside it. Our choice


class GraphStorage(Storage):
    """The caches' memory and the graphs that read it; both stay until a batch needs more, or training does."""

    def __init__(self) -> None:
        super().__init__()
        self._graphs: dict[tuple[int, ...], Graph] = {}
        self._logits: torch.Tensor | None = None
        self._pool: Any = None

    def take(self, shape: Sequence[int], like: Any) -> torch.Tensor:
        """As Storage's."""
        if self._flat is not None and len(self._flat) < math.prod(shape):
            self.clear()
        return super().take(shape, like)

    def graph(self, model: Any, cache: RowCache, end: int) -> Graph:
        """That of one more token of every row of ``cache``, whose attention reads ``end`` columns."""
        key = (*cache.layers.shape, end)
        if key not in self._graphs:
            logits_B_V = self._logits_of(cache.layers.shape[2], model)
            self._graphs[key] = Graph(model, cache, end, logits_B_V, self._pool)
        return self._graphs[key]

    def _logits_of(self, rows: int, model: Any) -> torch.Tensor:
        """Memory for the logits of so many rows, which all graphs write to, float64."""
        if self._logits is None or len(self._logits) < rows:
            self._graphs.clear()
            self._logits = torch.zeros(rows, model.config.vocab_size, dtype=torch.float64, device=model.device)
            self._pool = torch.cuda.graph_pool_handle() if model.device.type == "cuda" else None
        return self._logits[:rows]

    def release(self) -> None:
        """Before training: give the memory back, unless there is plenty beside the most that was needed so far, which
        includes that of the largest micro-batch (r3l.local.training.trainer:Trainer.probe_memory)."""
        if self._flat is None or self._flat.device.type != "cuda":
            return
        _, whole = torch.cuda.mem_get_info(self._flat.device)
        if torch.cuda.max_memory_allocated(self._flat.device) + self._flat.nbytes > PLENTY * whole:
            self.clear()

    def clear(self) -> None:
        """Forget all."""
        self._graphs.clear()
        self._flat = self._logits = self._pool = None  # torch gives up a pool with its last graph


class GraphCache(RowCache):
    """A RowCache with further rows that belong to nobody: empty dialogs."""

    def __init__(self, rows: int, columns: int, like: Any, storage: Storage) -> None:
        super().__init__(_rounded(rows), columns, like, storage)

    def keep_rows(self, rows: Sequence[int]) -> None:
        """As RowCache's."""
        nobody = [0] * (_rounded(len(rows)) - len(rows))
        super().keep_rows([*rows, *nobody])
        self.lengths[len(rows) :] = nobody


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
    """The forward pass of one more token of every row of ``cache``, captured; replayed while that memory stays.

    On a CPU, where tests run it, a replay computes it again.
    """

    def __init__(self, model: Any, cache: RowCache, end: int, logits_B_V: torch.Tensor, pool: Any) -> None:
        self._model, self._column, self._logits_B_V = model, GraphColumn(cache, end), logits_B_V
        self._graph = None
        if model.device.type == "cuda":
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph, pool=pool):
                self._compute()

    def logits(self, tokens: Sequence[int], positions: Sequence[int]) -> torch.Tensor:
        """After those tokens, float64, shape (B, V); overwritten by the next call."""
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
    """PackedDecoder whose steps are graphs: one for each number of rows and each ``GROWTH`` columns of a dialog."""

    caches = GraphCache
    grows = False  # a graph reads memory that stays where it is
    rows_left = 0.5
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
