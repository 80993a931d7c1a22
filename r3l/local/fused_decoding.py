"""The packed decoder with attention in one loop of machine code, on a CPU (r3l.local.kernels)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from r3l.local import kernels
from r3l.local.packed_decoding import New, PackedDecoder, RowCache, Storage
from r3l.local.products import heightened, of_height


class HeadCache(RowCache):
    """A RowCache in whose memory a head's numbers lie by dimension, (D, T), with a multiple of LANES columns."""

    def _memory(self, shape: Sequence[int], like: Any, storage: Storage) -> torch.Tensor:
        *rows, columns, size = shape
        whole = -(-columns // kernels.LANES) * kernels.LANES
        return super()._memory((*rows, size, whole), like, storage).transpose(-1, -2)

    def keep_rows(self, rows: Sequence[int]) -> None:
        """As RowCache's."""
        self.layers = self.layers.transpose(-1, -2)
        super().keep_rows(rows)
        self.layers = self.layers.transpose(-1, -2)


class Fused:
    """New tokens of some rows of a HeadCache, that attend by the kernel."""

    def __init__(self, cache: RowCache, rows: Sequence[int], tokens: Sequence[Sequence[int]]) -> None:
        counts = np.array([len(of_row) for of_row in tokens])
        self._layers = cache.layers.transpose(-1, -2).numpy()
        self._rows_K, self._starts_K = np.array(rows), np.array([cache.lengths[row] for row in rows])
        self._ends_K = counts.cumsum()  # among N
        new = int(self._ends_K[-1])
        self.ids_N = torch.zeros(heightened(new), dtype=torch.int64)  # beyond the new tokens nobody reads
        self.ids_N[:new] = torch.tensor([token for of_row in tokens for token in of_row])
        before_K = self._starts_K - (self._ends_K - counts)
        self.positions_N = torch.zeros_like(self.ids_N)
        self.positions_N[:new] = torch.from_numpy(np.repeat(before_K, counts) + np.arange(new))
        self.last_R = torch.from_numpy(self._ends_K - 1) if len(self.ids_N) > len(rows) else None
        for row, count in zip(rows, counts.tolist(), strict=True):
            cache.lengths[row] += count

    def attend(self, layer: int, queries_N_H_D: torch.Tensor, states_N_2_G_D: torch.Tensor) -> torch.Tensor:
        """As :meth:`New.attend`."""
        queries = queries_N_H_D.contiguous()  # for another layout numba would compile the kernel again
        attended = torch.zeros(queries.shape)
        rows = (self._rows_K, self._starts_K, self._ends_K)
        kernels.attend(queries.numpy(), states_N_2_G_D.numpy(), self._layers[layer], *rows, attended.numpy())
        return attended.flatten(1)


class FusedDecoder(PackedDecoder):
    """PackedDecoder over a HeadCache. Finished rows cost nothing here: they get no new token."""

    caches = HeadCache

    def _appended(self, rows: Sequence[int], tokens: Sequence[Sequence[int]]) -> New:
        return Fused(self.row_cache, rows, tokens)

    def _next(self, tokens_B: torch.Tensor) -> torch.Tensor:
        """Logits after one more token a row."""
        return self._logits(self._appended(self.rows, [[token] for token in tokens_B.tolist()]))

    def _logits(self, new: New) -> torch.Tensor:
        with of_height(len(new.ids_N)):
            return super()._logits(new)
