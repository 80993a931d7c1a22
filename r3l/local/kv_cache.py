"""Key-value caches: one per dialog, kept from turn to turn; a padded one for the batch in flight."""

from __future__ import annotations

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
