"""Key-value caches: one per dialog, kept from turn to turn; a padded one for the batch in flight, growing or fixed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

# One layer's keys and values of one dialog: shape (2, H, T, D), H key-value heads of size D, T tokens.
LayerState = torch.Tensor


def layer_shape(config: Any, rows: int, columns: int) -> tuple[int, int, int, int, int]:
    """Shape of one layer's cache for ``rows`` dialogs of ``columns`` tokens."""
    return 2, rows, config.num_key_value_heads, columns, head_size(config)


def head_size(config: Any) -> int:
    """Numbers in a key or value of one head."""
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


class BatchCache:
    """The cache a batch decodes with. Rows are right-aligned; ``valid_B_T`` says which columns are real.

    Columns: [padding | encoded prefix] then, appended by the model's forward passes, new columns. It speaks
    the part of transformers' Cache interface that attention layers call (``update``, ``get_seq_length``).
    """

    def __init__(self, prefixes: Sequence[Sequence[LayerState] | None], new_columns: int, like: Any) -> None:
        lengths = [p[0].shape[2] if p else 0 for p in prefixes]
        self.prefix = max(lengths)
        self.filled = self.prefix
        self.layers = self._storage(len(prefixes), self.prefix + new_columns, like)
        self.valid_B_T = torch.zeros(len(prefixes), self.layers[0].shape[3], dtype=torch.bool, device=like.device)
        for row, (prefix, length) in enumerate(zip(prefixes, lengths, strict=True)):
            if prefix is None or not length:
                continue
            self.valid_B_T[row, self.prefix - length : self.prefix] = True
            for layer, state in zip(self.layers, prefix, strict=True):
                layer[:, row, :, self.prefix - length : self.prefix] = state

    def _storage(self, rows: int, columns: int, like: Any) -> list[LayerState]:
        shape = layer_shape(like.config, rows, columns)
        return [torch.zeros(shape, dtype=like.dtype, device=like.device) for _ in range(like.config.num_hidden_layers)]

    def begin(self, valid_B_C: torch.Tensor) -> torch.Tensor:
        """Announce C new columns; returns the attention mask, bool, shape (B, 1, C, filled + C)."""
        columns = valid_B_C.shape[1]
        self._start, self.filled = self.filled, self.filled + columns
        self.valid_B_T[:, self._start : self.filled] = valid_B_C
        seen = self.valid_B_T[:, None, None, : self.filled].expand(-1, 1, columns, -1).clone()
        causal = torch.ones(columns, columns, dtype=torch.bool, device=seen.device).tril()
        seen[..., self._start :] &= causal
        # A padding query must attend to something, or softmax yields NaN; its output is never read.
        seen[..., self._start :] |= torch.eye(columns, dtype=torch.bool, device=seen.device)
        return seen

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Called by each attention layer: store the new columns, return all filled ones."""
        layer = self.layers[layer_idx][:, : len(keys)]
        layer[0, :, :, self._start : self.filled] = keys
        layer[1, :, :, self._start : self.filled] = values
        return layer[0, :, :, : self.filled], layer[1, :, :, : self.filled]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Columns filled before the forward pass in progress."""
        return self._start

    def row(self, row: int) -> list[LayerState]:
        """The valid columns of one row, copied out: the dialog's new state."""
        keep = self.valid_B_T[row, : self.filled].nonzero().squeeze(1)
        return [layer[:, row].index_select(2, keep) for layer in self.layers]

    def keep_rows(self, rows: torch.Tensor) -> None:
        """Drop all rows but ``rows`` (when most of a batch has finished)."""
        self.layers = [layer.index_select(1, rows) for layer in self.layers]
        self.valid_B_T = self.valid_B_T.index_select(0, rows)


class Buffers:
    """Memory for caches of fixed shapes, used again by one batch after another.

    Every shape is a view of the same storage, as large as the largest one so far: a recorded CUDA graph, and compiled
    code that writes into its inputs, ask that a shape lies at the same address each time.
    """

    def __init__(self) -> None:
        self._flat: list[torch.Tensor] = []
        self._views: dict[tuple[int, ...], list[LayerState]] = {}

    def layers(self, rows: int, columns: int, like: Any) -> list[LayerState]:
        """The layers' caches for ``rows`` dialogs of ``columns`` tokens; they hold what was last written there."""
        shape = layer_shape(like.config, rows, columns)
        size = math.prod(shape)
        if not self._flat or self._flat[0].numel() < size:
            self._views.clear()
            layers = range(like.config.num_hidden_layers)
            self._flat = [torch.zeros(size, dtype=like.dtype, device=like.device) for _ in layers]
        if shape not in self._views:
            self._views[shape] = [flat[:size].view(shape) for flat in self._flat]
            for view in self._views[shape]:
                torch._dynamo.mark_static_address(view)
        return self._views[shape]


COLUMNS = 256  # least width of a fixed shape; our choice, as the steps below: few shapes, at most 4 x the memory


def _rows(least: int) -> int:
    return _power(4 if least <= 16 else 2, least)


def _columns(least: int) -> int:
    return COLUMNS * _power(2, math.ceil(least / COLUMNS))


def _power(base: int, least: int) -> int:
    """The smallest power of ``base`` that is not below ``least``."""
    value = 1
    while value < least:
        value *= base
    return value


class FixedCache(BatchCache):
    """A cache whose shape stays while tokens are appended, so that one compiled step serves them all.

    A dialog that has finished leaves its row behind, seen by nobody; when few are left they move into a smaller shape.
    ``rows_B`` says in which row of ``layers`` a live dialog lies.
    """

    def __init__(
        self, prefixes: Sequence[Sequence[LayerState] | None], new_columns: int, like: Any, buffers: Buffers
    ) -> None:
        self._buffers, self._like = buffers, like
        super().__init__(prefixes, new_columns, like)
        self.rows_B = torch.arange(len(prefixes), device=like.device)

    def _storage(self, rows: int, columns: int, like: Any) -> list[LayerState]:
        return self._buffers.layers(_rows(rows), _columns(columns), like)

    def begin_column(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Announce one new column; returns its index, shape (1,), and the mask over all R rows, shape (R, 1, 1, T).

        A row that nobody reads attends to its own new column, or softmax would yield NaN.
        """
        self._start, self.filled = self.filled, self.filled + 1
        self.valid_B_T[:, self._start] = True
        mask_R_T = self.valid_B_T.new_zeros(self.layers[0].shape[1], self.valid_B_T.shape[1])
        mask_R_T[:, self._start] = True
        mask_R_T[self.rows_B] = self.valid_B_T
        return torch.tensor([self._start], device=mask_R_T.device), mask_R_T[:, None, None]

    def spread(self, values_B: torch.Tensor) -> torch.Tensor:
        """Live dialogs' values in the rows where they lie, zero elsewhere, shape (B,) to (R, 1)."""
        spread_R = values_B.new_zeros(self.layers[0].shape[1])
        spread_R[self.rows_B] = values_B
        return spread_R[:, None]

    def row(self, row: int) -> list[LayerState]:
        """The valid columns of one live dialog, copied out."""
        keep = self.valid_B_T[row, : self.filled].nonzero().squeeze(1)
        return [layer[:, self.rows_B[row]].index_select(2, keep) for layer in self.layers]

    def keep_rows(self, rows: torch.Tensor) -> None:
        """Drop all dialogs but ``rows``; those left move when they fit a smaller shape."""
        self.valid_B_T = self.valid_B_T.index_select(0, rows)
        self.rows_B = self.rows_B.index_select(0, rows)
        count = _rows(len(rows))
        if count == self.layers[0].shape[1]:
            return
        smaller = self._buffers.layers(count, self.layers[0].shape[3], self._like)
        for new, old in zip(smaller, self.layers, strict=True):
            new[:, : len(rows)] = old.index_select(1, self.rows_B)  # a copy first: both lie in the same storage
        self.layers = smaller
        self.rows_B = torch.arange(len(rows), device=rows.device)


class Column:
    """What attention layers see of a FixedCache in a compiled step: one column, written at ``cursor``."""

    def __init__(self, layers: Sequence[LayerState], cursor: torch.Tensor) -> None:
        self.layers, self.cursor = layers, cursor

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store the new column; returns all columns, which the mask tells apart."""
        layer = self.layers[layer_idx]
        layer[0].index_copy_(2, self.cursor, keys)
        layer[1].index_copy_(2, self.cursor, values)
        return layer[0], layer[1]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Not read: positions and mask are given."""
        return 0
