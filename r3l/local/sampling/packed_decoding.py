"""Decoding by the packed forward pass: no padding of prompts, a prompt that several dialogs open with encoded once.

A dialog's token at position p always lies in column p of its row, so rows of different lengths need no alignment and
no mask but "not after my own position". Rows of finished responses stay until a quarter has finished: then waiting
requests begin there, or the caches move together, which costs more than what few such rows compute.
"""

from __future__ import annotations

import math
import mmap
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from os.path import commonprefix  # of any sequences
from typing import Any, Protocol

import numpy as np
import torch

from r3l.core.batching import packed
from r3l.local.model import forward
from r3l.local.model.forward import DialogCache, cache_shape
from r3l.local.model.precision import vocabulary_logits
from r3l.local.sampling.decoding import Decoder, GenerationRequest, tokens_in


class Storage:
    """Memory for the caches of one batch after another: fresh pages cost a tenth of sampling on a CPU."""

    def __init__(self) -> None:
        self._flat: torch.Tensor | None = None

    def take(self, shape: Sequence[int], like: Any) -> torch.Tensor:
        """A tensor of ``shape`` that holds finite numbers, whatever was last written there."""
        size = math.prod(shape)
        if self._flat is None or len(self._flat) < size:
            self._flat = _zeros(size, like)
        return self._flat[:size].view(*shape)

    def release(self) -> None:
        """Before training."""


def _zeros(size: int, like: Any) -> torch.Tensor:
    """On a CPU in memory of its own, a page of which is taken when it is first written to."""
    if like.device.type != "cpu":
        return torch.zeros(size, dtype=like.dtype, device=like.device)
    return torch.frombuffer(mmap.mmap(-1, size * like.dtype.itemsize), dtype=like.dtype)


GROWTH = 128  # columns by which caches grow; at most that many are read in vain. Our choice


SCORES = 2**24  # that a block of queries has in one head, at most: they lie in memory, in as many heads. Our choice
SHARED = 128  # tokens that prompts must have in common to be encoded once for all of them. Our choice
ACTIVATIONS = 2**26  # numbers between the two halves of an MLP, of tokens that are encoded at once. Our choice


def rounded_up(count: int, step: int) -> int:
    """The next multiple of ``step``."""
    return -(-count // step) * step


class RowCache:
    """Keys and values of a batch of dialogs: a dialog's token at position p lies in column p of its row.

    ``columns``: room for the longest one, at first.
    """

    def __init__(self, rows: int, columns: int, like: Any, storage: Storage) -> None:
        self._like, self._storage = like, storage
        self.layers = self._memory(cache_shape(like.config, rows, columns), like, storage)
        self.lengths = [0] * rows

    def _memory(self, shape: Sequence[int], like: Any, storage: Storage) -> torch.Tensor:
        return storage.take(shape, like)

    def put(self, row: int, state: DialogCache | None) -> None:
        """Let a row hold ``state``, what a dialog brings, alone."""
        self.lengths[row] = tokens_in(state)
        if state is not None:
            self.layers[:, :, row, :, : self.lengths[row]] = state

    def reserve(self, columns: int) -> None:
        """Make room for dialogs of so many tokens."""
        *rows, present, size = self.layers.shape
        if columns > present:
            grown = self._memory((*rows, rounded_up(columns, GROWTH), size), self._like, self._storage)
            used = max(self.lengths)
            for layer in reversed(range(len(grown))):  # often the same memory: none is written over before it has moved
                grown[layer][..., :used, :] = self.layers[layer][..., :used, :].clone()
            self.layers = grown

    def row(self, row: int) -> DialogCache:
        """The tokens of one row, copied out: the dialog's new state."""
        return self.layers[:, :, row, :, : self.lengths[row]].clone()

    def copy_beginnings(self, leader_of: Mapping[int, int]) -> None:
        """Give each row what row ``leader_of[row]`` holds."""
        for row, leader in leader_of.items():
            if leader != row:
                self.lengths[row] = self.lengths[leader]
                self.layers[:, :, row, :, : self.lengths[row]] = self.layers[:, :, leader, :, : self.lengths[row]]

    def keep_rows(self, rows: Sequence[int]) -> None:
        """Drop all rows but ``rows``, which move together in the same memory."""
        layers, twice, _, *row = self.layers.shape
        kept = self._memory((layers, twice, len(rows), *row), self._like, self._storage)
        used = max(self.lengths)
        for before, after in zip(self.layers, kept, strict=True):
            after[..., :used, :] = before[:, list(rows), :, :used]  # a copy, so that the two may overlap
        self.layers, self.lengths = kept, [self.lengths[row] for row in rows]


class NewTokens(Protocol):
    """New tokens of rows of a cache, N in all: what they are, and how they attend.

    ``last_R``: the last of each row among N; None where there is one of each.
    """

    ids_N: torch.Tensor
    positions_N: torch.Tensor
    last_R: torch.Tensor | None

    def attend(self, layer: int, queries_N_H_D: torch.Tensor, states_N_2_G_D: torch.Tensor) -> torch.Tensor:
        """Store the new keys and values; every new token's attention over its row so far, shape (N, H * D)."""


class AppendedTokens:
    """New tokens of some rows of a cache: where their keys and values go, and how they attend.

    Rows with about as many new tokens attend together.
    """

    def __init__(self, cache: RowCache, rows: Sequence[int], tokens: Sequence[Sequence[int]]) -> None:
        self._layers, device = cache.layers, cache.layers.device
        counts, starts = [len(of_row) for of_row in tokens], [cache.lengths[row] for row in rows]
        ends = np.cumsum(counts)  # in the packed tokens
        self.ids_N = torch.tensor([token for of_row in tokens for token in of_row], device=device)
        positions_N = np.concatenate([np.arange(s, s + count) for s, count in zip(starts, counts, strict=True)])
        self.positions_N = torch.from_numpy(positions_N).to(device)
        self.last_R: torch.Tensor | None = torch.from_numpy(ends - 1).to(device)
        self._rows_N = torch.from_numpy(np.repeat(rows, counts)).to(device)
        self._blocks: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
        answers_N, before = np.zeros(len(positions_N), dtype=np.int64), 0
        for together, first, width in attending_together(counts, starts):
            end = max(starts[k] + min(counts[k], first + width) for k in together)
            firsts_R = np.array([ends[k] - counts[k] for k in together])
            within_C, counts_R_1 = np.arange(first, first + width), np.array([[counts[k]] for k in together])
            real_R_C = within_C < counts_R_1  # padding queries do what the row's last one does
            queries_R_C = firsts_R[:, None] + np.minimum(within_C, counts_R_1 - 1)
            answers_N[queries_R_C[real_R_C]] = before + real_R_C.flatten().nonzero()[0]
            before += real_R_C.size
            queries = torch.from_numpy(queries_R_C).to(device)
            hidden = torch.arange(end, device=device) > self.positions_N[queries][..., None]
            bias = torch.zeros(hidden.shape, device=device).masked_fill_(hidden, -torch.inf)
            self._blocks.append((torch.tensor([rows[k] for k in together], device=device), queries, bias))
        self._answers_N = torch.from_numpy(answers_N).to(device)
        for row, count in zip(rows, counts, strict=True):
            cache.lengths[row] += count

    def attend(self, layer: int, queries_N_H_D: torch.Tensor, states_N_2_G_D: torch.Tensor) -> torch.Tensor:
        """As :meth:`NewTokens.attend`."""
        cache = self._layers[layer]
        cache[:, self._rows_N, :, self.positions_N] = states_N_2_G_D
        attended = []
        for rows, queries_R_C, bias in self._blocks:
            keys, values = cache[..., : bias.shape[-1], :].index_select(1, rows)
            attended.append(forward.attention(queries_N_H_D[queries_R_C], keys, values, bias).flatten(0, 1))
        return torch.cat(attended).index_select(0, self._answers_N)


def packed_by_length(counts: Sequence[int]) -> list[list[int]]:
    """Indices of ``counts`` in batches whose smallest count is at least half of the largest, or below 8."""
    batches: list[list[int]] = []
    for k in sorted(range(len(counts)), key=lambda k: counts[k]):
        if batches and counts[k] <= max(8, 2 * counts[batches[-1][0]]):
            batches[-1].append(k)
        else:
            batches.append([k])
    return batches


def attending_together(counts: Sequence[int], starts: Sequence[int]) -> Iterator[tuple[list[int], int, int]]:
    """Blocks of rows with ``counts`` new tokens after ``starts`` others: indices, the block's first new token of each
    row and its number of them. Some rows may have fewer; no block has more than SCORES scores, or it is one query."""
    for together in packed_by_length(counts):
        most, longest = max(counts[k] for k in together), max(starts[k] + counts[k] for k in together)
        width = max(1, SCORES // (len(together) * longest))
        for first in range(0, most, width):
            yield [k for k in together if counts[k] > first], first, min(width, most - first)


class AppendedColumn:
    """One new token of every row of a cache: AppendedTokens without what several tokens a row need.

    Attention reads all columns: in bfloat16 on a CPU products of a part of each row took three times as long.
    """

    last_R: torch.Tensor | None = None

    def __init__(self, cache: RowCache, tokens: Sequence[int]) -> None:
        cache.reserve(max(cache.lengths) + 1)
        device = cache.layers.device
        self._layers, self._end = cache.layers, cache.layers.shape[-2]
        self.ids_N = torch.tensor(tokens, device=device)
        self.positions_N = torch.tensor(cache.lengths, device=device)
        self._rows_N = torch.arange(len(tokens), device=device)
        self.hide_later()

    def hide_later(self) -> None:
        """No token attends to columns after its own."""
        device = self._layers.device
        hidden = torch.arange(self._end, device=device) > self.positions_N[:, None, None]
        zeros = torch.zeros(hidden.shape, dtype=self._layers.dtype, device=device)  # cast once, not in every layer
        self._bias = zeros.masked_fill_(hidden, -torch.inf)

    def attend(self, layer: int, queries_N_H_D: torch.Tensor, states_N_2_G_D: torch.Tensor) -> torch.Tensor:
        """As :meth:`NewTokens.attend`."""
        cache = self._layers[layer]
        cache[:, self._rows_N, :, self.positions_N] = states_N_2_G_D
        keys, values = cache[..., : self._end, :]
        return forward.attention(queries_N_H_D[:, None], keys, values, self._bias)[:, 0]


class PackedDecoder(Decoder):
    """Decoder over a RowCache, with attention by torch's operations."""

    caches: type[RowCache] = RowCache
    grows = True  # the caches, while the dialogs do
    columns_by = GROWTH  # a cache has a multiple of it
    rows_left = 0.75  # caches move together when fewer rows are left; measured: 0.5 to 0.9 take the same time

    def __init__(
        self,
        storage: Storage,
        model: Any,
        requests: list[GenerationRequest],
        end_id: int,
        counts: defaultdict[str, float],
    ) -> None:
        super().__init__(model, requests, end_id, counts)
        self.storage = storage
        self.row_cache = self.caches(len(requests), self._columns(requests), model, storage)
        self.rows: list[int] = []  # where each live request lies in the cache

    def _columns(self, requests: Sequence[GenerationRequest]) -> int:
        """Of the cache, when ``requests`` begin."""
        return rounded_up(max(request.columns(at_most=not self.grows) for request in requests), self.columns_by)

    def _begin(self, requests: Sequence[GenerationRequest]) -> torch.Tensor:
        request_in = dict(zip(self._free_rows(), requests, strict=False))
        self.row_cache.reserve(self._columns(requests))
        for row, request in request_in.items():
            self.row_cache.put(row, request.state)
        leaders: dict[tuple[int, ...], int] = {}
        leader_of = {
            row: row if request.state is not None else leaders.setdefault(tuple(request.pending), row)
            for row, request in request_in.items()
        }
        new = {row: request_in[row].pending for row in sorted(set(leader_of.values()))}
        new = self._without_beginning(new, [row for row in new if request_in[row].state is None])
        after = self._encode(new)
        self.row_cache.copy_beginnings(leader_of)
        self.rows += request_in
        return torch.stack([after[leader] for leader in leader_of.values()])

    def _without_beginning(self, new: dict[int, list[int]], empty: Sequence[int]) -> dict[int, list[int]]:
        """``new`` tokens of rows without what all ``empty`` rows begin with: if that is long, it is encoded once."""
        prompts = [new[row] for row in empty]
        shared = min([len(commonprefix(prompts)), *(len(prompt) - 1 for prompt in prompts)])
        if len(prompts) < 2 or shared < SHARED:
            return new
        self._encode({empty[0]: prompts[0][:shared]})
        self.row_cache.copy_beginnings(dict.fromkeys(empty, empty[0]))
        return new | {row: new[row][shared:] for row in empty}

    def _encode(self, new: Mapping[int, Sequence[int]]) -> dict[int, torch.Tensor]:
        """Logits after the ``new`` tokens of each row, of as many at once as a forward pass has memory for."""
        rows, after, most = list(new), dict[int, torch.Tensor](), ACTIVATIONS // self.model.config.intermediate_size
        for part in packed([len(tokens) for tokens in new.values()], most):
            together = [rows[k] for k in sorted(part)]
            logits = self._logits(self._appended(together, [new[row] for row in together]))
            after |= zip(together, logits, strict=True)
            self.counts["encoded"] += sum(len(new[row]) for row in together)
        return after

    def _appended(self, rows: Sequence[int], tokens: Sequence[Sequence[int]]) -> NewTokens:
        return AppendedTokens(self.row_cache, rows, tokens)

    def _next(self, tokens_B: torch.Tensor) -> torch.Tensor:
        tokens = [self.end_id] * len(self.row_cache.lengths)
        for row, token in zip(self.rows, tokens_B.tolist(), strict=True):
            tokens[row] = token
        logits = self._column_logits(tokens)
        for row in self.rows:  # a finished one writes its next column again and again
            self.row_cache.lengths[row] += 1
        return logits if self.rows == list(range(len(tokens))) else logits[self.rows]

    def _column_logits(self, tokens: Sequence[int]) -> torch.Tensor:
        """After one more token of every row of the cache, float64."""
        return self._logits(AppendedColumn(self.row_cache, tokens))

    def _logits(self, new: NewTokens) -> torch.Tensor:
        """After the last new token of each row, float64."""
        hidden = forward.hidden_states(self.model, new.ids_N, new.positions_N, new.attend, new.last_R)
        self.counts["forwards"] += 1
        return vocabulary_logits(hidden, self.projection()).double()

    def _state(self, place: int) -> DialogCache:
        return self.row_cache.row(self.rows[place])

    def _keep(self, places: list[int]) -> list[GenerationRequest]:
        self.rows = [self.rows[place] for place in places]
        rows = len(self.row_cache.lengths)
        if len(self.rows) > self.rows_left * rows:
            return []
        room = max(len(self.rows), min(rows, self.waiting.most_rows()))
        if room < rows:
            self.row_cache.keep_rows([*self.rows, *self._free_rows()[: room - len(self.rows)]])
            self.rows = list(range(len(self.rows)))
        return self.waiting.fitting(room - len(self.rows), room)

    def _free_rows(self) -> list[int]:
        return [row for row in range(len(self.row_cache.lengths)) if row not in self.rows]
