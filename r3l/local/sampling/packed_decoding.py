"""Decoding by the packed forward pass, which pads no prompt and encodes a shared beginning of prompts once.

A dialog's token at position p is always in column p of its row of the key-value cache. So rows of different
lengths need no alignment, and no mask but "not after my own position". Rows of finished responses stay until
a quarter has finished, since such rows cost less than moving the caches together; then queued requests begin
in them, or the caches move.

The parts: ``Storage`` owns the memory, ``RowCache`` the rows of a batch in it, ``NewTokens`` are the tokens
of one forward pass and know how they attend to the cache, and ``PackedDecoder`` calls the model.
"""

from __future__ import annotations

import math
import mmap
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from os.path import commonprefix  # works on any sequences
from typing import Any, Protocol

import numpy as np
import torch

from r3l.core.batching import batches_by_length
from r3l.local.model import forward
from r3l.local.model.forward import DialogCache, cache_shape, vocabulary_logits
from r3l.local.sampling.decoding import Decoder, GenerationRequest, tokens_in
from r3l.local.sampling.prompt_lookup import PromptLookup

# Our choices:
GROWTH = 128  # columns by which caches grow; so many are read needlessly, at most
SCORES = 2**24  # most attention scores of one head in a block of queries: they are kept in memory
SHARED = 128  # tokens that prompts must have in common to be encoded once for all of them
ACTIVATIONS = 2**26  # numbers between the two halves of an MLP, for tokens that are encoded at once


def rounded_up(count: int, step: int) -> int:
    """``count`` rounded up to a multiple of ``step``."""
    return -(-count // step) * step


class Storage:
    """One buffer of memory that batches use one after another for their key-value caches.

    Each :meth:`take` returns the same memory, so the tensor taken before is overwritten; a larger request
    gets a new buffer. New memory for each batch would cost a tenth of sampling on a CPU.
    """

    def __init__(self) -> None:
        self._flat: torch.Tensor | None = None

    def take(self, shape: Sequence[int], like: Any) -> torch.Tensor:
        """The buffer as a tensor of ``shape``, with type and device of the model ``like``.

        It grows if needed. Its numbers are finite but arbitrary: what the last user left, or zeros.
        """
        size = math.prod(shape)
        if self._flat is None or len(self._flat) < size:
            if like.device.type == "cpu":  # own pages, which take memory only once they are written to
                memory = mmap.mmap(-1, size * like.dtype.itemsize)
                self._flat = torch.frombuffer(memory, dtype=like.dtype)
            else:
                self._flat = torch.zeros(size, dtype=like.dtype, device=like.device)
        return self._flat[:size].view(*shape)

    def release(self) -> None:
        """Called before training, which may need the memory. Nothing is freed here; a subclass may."""


class RowCache:
    """Keys and values of a batch of dialogs, one dialog per row; its token at position p is in column p.

    ``rows``: number of dialogs; ``columns``: number of tokens for which there is room at first; ``like``: the
    model, whose sizes, type and device it has; ``storage``: where its memory comes from. ``layers``: the
    keys and values (forward.cache_shape); ``lengths``: number of tokens in each row, 0 at first.
    """

    def __init__(self, rows: int, columns: int, like: Any, storage: Storage) -> None:
        self._like = like
        self._storage = storage
        self.layers = self._memory(cache_shape(like.config, rows, columns))
        self.lengths = [0] * rows

    def _memory(self, shape: Sequence[int]) -> torch.Tensor:
        """A tensor of ``shape`` in the storage's memory; subclasses may order it otherwise."""
        return self._storage.take(shape, self._like)

    def put(self, row: int, state: DialogCache | None) -> None:
        """Replace the content of ``row`` by a copy of a dialog's keys and values; None: an empty row.

        Raises RuntimeError if the dialog has more tokens than the cache has columns: :meth:`reserve` first.
        """
        self.lengths[row] = tokens_in(state)
        if state is not None:
            self.layers[:, :, row, :, : self.lengths[row]] = state

    def reserve(self, columns: int) -> None:
        """Make room for dialogs of ``columns`` tokens and keep the content; does nothing if there is room."""
        *rows, present, size = self.layers.shape
        if columns > present:
            grown = self._memory((*rows, rounded_up(columns, GROWTH), size))
            used = max(self.lengths)
            # Old and new are often the same memory. Layers move up, so from the last one on, none is
            # overwritten before it has moved.
            for layer in reversed(range(len(grown))):
                grown[layer][..., :used, :] = self.layers[layer][..., :used, :].clone()
            self.layers = grown

    def row(self, row: int) -> DialogCache:
        """A copy of one row's keys and values, to keep as the dialog's state."""
        return self.layers[:, :, row, :, : self.lengths[row]].clone()

    def copy_beginnings(self, leader_of: Mapping[int, int]) -> None:
        """Copy the content of row ``leader_of[row]`` into each ``row`` among the keys."""
        for row, leader in leader_of.items():
            if leader != row:
                self.lengths[row] = self.lengths[leader]
                used = self.lengths[leader]
                self.layers[:, :, row, :, :used] = self.layers[:, :, leader, :, :used]

    def keep_rows(self, rows: Sequence[int]) -> None:
        """Keep only the rows with these indices, in this order; the rest is dropped.

        They move to the front of the same memory and get the indices 0, 1, 2 ...
        """
        layers, twice, _, *row = self.layers.shape
        kept = self._memory((layers, twice, len(rows), *row))
        used = max(self.lengths)
        for before, after in zip(self.layers, kept, strict=True):
            after[..., :used, :] = before[:, list(rows), :, :used]  # indexing copies, so the two may overlap
        self.layers = kept
        self.lengths = [self.lengths[row] for row in rows]


class NewTokens(Protocol):
    """The N new tokens of one forward pass, of one or more dialogs, and their attention over a cache.

    ``ids_N``, ``positions_N``: token ids and positions. ``wanted_W``: indices among the N of the tokens whose
    logits are read, such as each dialog's last; None: all.
    """

    ids_N: torch.Tensor
    positions_N: torch.Tensor
    wanted_W: torch.Tensor | None

    def attend(self, layer: int, queries_N_H_D: torch.Tensor, states_N_2_G_D: torch.Tensor) -> torch.Tensor:
        """Store keys and values of the new tokens in the cache and attend, in one layer of the model.

        ``states_N_2_G_D``: key and value of each new token. Returns the attention output (N, H * D) of each
        over all tokens of its dialog up to itself.
        """


class AppendedTokens:
    """NewTokens of prompts: ``tokens[k]`` are the new tokens of row ``rows[k]`` of ``cache``.

    Creating one lengthens those rows. Dialogs with similar numbers of new tokens attend together.
    """

    def __init__(self, cache: RowCache, rows: Sequence[int], tokens: Sequence[Sequence[int]]) -> None:
        self._layers = cache.layers
        device = cache.layers.device

        # Pack the tokens of all rows side by side, each with its position and its row.
        counts = [len(of_row) for of_row in tokens]
        starts = [cache.lengths[row] for row in rows]
        ends = np.cumsum(counts)  # of each row among the packed tokens
        self.ids_N = torch.tensor([token for of_row in tokens for token in of_row], device=device)
        of_rows = [np.arange(start, start + count) for start, count in zip(starts, counts, strict=True)]
        positions_N = np.concatenate(of_rows)
        self.positions_N = torch.from_numpy(positions_N).to(device)
        self.wanted_W: torch.Tensor | None = torch.from_numpy(ends - 1).to(device)
        self._rows_N = torch.from_numpy(np.repeat(rows, counts)).to(device)

        # Cut them into blocks of rows and queries that attend at once, and note where each token's result
        # will be among the results of all blocks.
        self._blocks: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
        result_of_N = np.zeros(len(positions_N), dtype=np.int64)
        results = 0
        for together, first, width in attending_together(counts, starts):
            end = max(starts[k] + min(counts[k], first + width) for k in together)
            firsts_R = np.array([ends[k] - counts[k] for k in together])
            counts_R_1 = np.array([[counts[k]] for k in together])
            within_C = np.arange(first, first + width)
            # Rows with fewer tokens repeat their last query as padding.
            real_R_C = within_C < counts_R_1
            queries_R_C = firsts_R[:, None] + np.minimum(within_C, counts_R_1 - 1)
            result_of_N[queries_R_C[real_R_C]] = results + real_R_C.flatten().nonzero()[0]
            results += real_R_C.size
            queries = torch.from_numpy(queries_R_C).to(device)
            hidden = torch.arange(end, device=device) > self.positions_N[queries][..., None]
            bias = torch.zeros(hidden.shape, device=device).masked_fill_(hidden, -torch.inf)
            self._blocks.append((torch.tensor([rows[k] for k in together], device=device), queries, bias))
        self._result_of_N = torch.from_numpy(result_of_N).to(device)

        for row, count in zip(rows, counts, strict=True):
            cache.lengths[row] += count

    def attend(self, layer: int, queries_N_H_D: torch.Tensor, states_N_2_G_D: torch.Tensor) -> torch.Tensor:
        """Store keys and values of the new tokens in the cache and attend, in one layer of the model.

        ``states_N_2_G_D``: key and value of each new token. Returns the attention output (N, H * D) of each
        over all tokens of its dialog up to itself.
        """
        cache = self._layers[layer]
        cache[:, self._rows_N, :, self.positions_N] = states_N_2_G_D
        attended = []
        for rows, queries_R_C, bias in self._blocks:
            keys, values = cache[..., : bias.shape[-1], :].index_select(1, rows)
            attended.append(forward.attention(queries_N_H_D[queries_R_C], keys, values, bias).flatten(0, 1))
        return torch.cat(attended).index_select(0, self._result_of_N)


def attending_together(counts: Sequence[int], starts: Sequence[int]) -> Iterator[tuple[list[int], int, int]]:
    """Cut the new tokens of several rows into blocks that attend in one operation.

    Row k has ``counts[k]`` new tokens after ``starts[k]`` earlier ones. Yields (indices of rows, first,
    width): new tokens ``first`` to ``first + width`` of these rows; some rows may have fewer. A block has at
    most SCORES attention scores, or one token a row.
    """
    # Rows whose numbers of new tokens differ by more than a factor of 2 (and more than 8) do not go
    # together: the shorter ones would be mostly padding.
    batches: list[list[int]] = []
    for k in sorted(range(len(counts)), key=lambda k: counts[k]):
        if batches and counts[k] <= max(8, 2 * counts[batches[-1][0]]):
            batches[-1].append(k)
        else:
            batches.append([k])
    for together in batches:
        most = max(counts[k] for k in together)
        longest = max(starts[k] + counts[k] for k in together)
        width = max(1, SCORES // (len(together) * longest))
        for first in range(0, most, width):
            yield [k for k in together if counts[k] > first], first, min(width, most - first)


class AppendedColumns:
    """The NewTokens of a decoding step: a sampled token for each row of ``cache``, and drafts, for all as many.

    The caller increases the rows' lengths after the step. Attention reads every column of the cache and masks
    the unused ones: in bfloat16 on a CPU, reading only the used part of each row took three times as long.
    """

    def __init__(
        self, cache: RowCache, tokens: Sequence[Sequence[int]], wanted_W: torch.Tensor | None = None
    ) -> None:
        width = len(tokens[0])
        cache.reserve(max(cache.lengths) + width)
        device = cache.layers.device
        self._layers = cache.layers
        self._end = cache.layers.shape[-2]
        self.wanted_W = wanted_W
        self.ids_N = torch.tensor(tokens, device=device).flatten()
        positions = [length + column for length in cache.lengths for column in range(width)]
        self.positions_N = torch.tensor(positions, device=device)
        self._rows_N = torch.arange(len(tokens), device=device).repeat_interleave(width)
        self.hide_later()

    def hide_later(self) -> None:
        """Set the attention bias: 0 up to the column of each new token, -inf in later columns."""
        device = self._layers.device
        positions_R_C_1 = self.positions_N.view(self._layers.shape[2], -1, 1)
        hidden = torch.arange(self._end, device=device) > positions_R_C_1
        # In the type of the caches, so that it is cast once and not in every layer.
        zeros = torch.zeros(hidden.shape, dtype=self._layers.dtype, device=device)
        self._bias = zeros.masked_fill_(hidden, -torch.inf)

    def attend(self, layer: int, queries_N_H_D: torch.Tensor, states_N_2_G_D: torch.Tensor) -> torch.Tensor:
        """Store keys and values of the new tokens in the cache and attend, in one layer of the model.

        ``states_N_2_G_D``: key and value of each new token. Returns the attention output (N, H * D) of each
        over all tokens of its dialog up to itself.
        """
        cache = self._layers[layer]
        cache[:, self._rows_N, :, self.positions_N] = states_N_2_G_D
        keys, values = cache[..., : self._end, :]
        queries_R_C_H_D = queries_N_H_D.view(*self._bias.shape[:2], *queries_N_H_D.shape[1:])
        return forward.attention(queries_R_C_H_D, keys, values, self._bias).flatten(0, 1)


class PackedDecoder(Decoder):
    """Decoder by the packed forward pass, with attention by torch's operations.

    Its dialogs are the rows of a :class:`RowCache`; ``storage`` provides the memory. Queued requests begin
    in the rows of finished ones.
    """

    caches: type[RowCache] = RowCache
    appended: Callable[..., NewTokens] = AppendedTokens  # kind of prompt tokens that the attention takes
    grows = True  # caches grow with the dialogs, instead of having room for the longest possible ones at once
    columns_by = GROWTH  # the number of a cache's columns is a multiple of it
    rows_left = 0.75  # caches move together when fewer rows are left; 0.5 to 0.9 take the same time

    def __init__(
        self,
        storage: Storage,
        model: Any,
        requests: list[GenerationRequest],
        end_id: int,
        counts: defaultdict[str, float],
        lookup: PromptLookup | None = None,
    ) -> None:
        super().__init__(model, requests, end_id, counts, lookup)
        self.storage = storage
        self.row_cache = self.caches(len(requests), self._columns(requests), model, storage)
        self.rows: list[int] = []  # row of each live request in the cache

    def _columns(self, requests: Sequence[GenerationRequest]) -> int:
        """Columns that the cache needs when ``requests`` begin."""
        columns = max(request.columns(at_most=not self.grows) for request in requests)
        return rounded_up(columns, self.columns_by)

    def _begin(self, requests: Sequence[GenerationRequest]) -> torch.Tensor:
        # Give every request a free row, with the caches of its earlier turns.
        request_in = dict(zip(self._free_rows(), requests, strict=False))
        self.row_cache.reserve(self._columns(requests))
        for row, request in request_in.items():
            self.row_cache.put(row, request.state)

        # A first prompt that several requests share (members of a group) is encoded once, in a leader's row.
        leader_of: dict[int, int] = {}
        first_with: dict[tuple[int, ...], int] = {}  # prompt -> the first row that has it
        for row, request in request_in.items():
            leader_of[row] = row
            if request.state is None:
                leader_of[row] = first_with.setdefault(tuple(request.pending), row)
        new = {row: request_in[row].pending for row in sorted(set(leader_of.values()))}

        # What all first prompts begin with (the system message, mostly) is encoded once too, if it is long.
        opening = [row for row in new if request_in[row].state is None]
        prompts = [new[row] for row in opening]
        shared = min([len(commonprefix(prompts)), *(len(prompt) - 1 for prompt in prompts)])
        if len(prompts) > 1 and shared >= SHARED:
            self._encode({opening[0]: prompts[0][:shared]})
            self.row_cache.copy_beginnings(dict.fromkeys(opening, opening[0]))
            new |= {row: new[row][shared:] for row in opening}

        # Encode the rest, then copy the leaders' rows to the requests with the same prompt.
        after = self._encode(new)
        self.row_cache.copy_beginnings(leader_of)
        self.rows += request_in
        return torch.stack([after[leader] for leader in leader_of.values()])

    def _encode(self, new: Mapping[int, Sequence[int]]) -> dict[int, torch.Tensor]:
        """Append ``new`` tokens by row, in as few passes as memory allows; the last logits of each row."""
        rows = list(new)
        after: dict[int, torch.Tensor] = {}
        most = ACTIVATIONS // self.model.config.intermediate_size
        for part in batches_by_length([len(tokens) for tokens in new.values()], most):
            together = [rows[k] for k in sorted(part)]
            tokens = [new[row] for row in together]
            logits = self._logits(self.appended(self.row_cache, together, tokens))
            after |= zip(together, logits, strict=True)
            self.counts["encoded"] += sum(len(new[row]) for row in together)
        return after

    def _next(self, tokens: Sequence[Sequence[int]]) -> torch.Tensor:
        # Every row of the cache takes part, with as many tokens as the longest. What pads a row writes columns
        # beyond its length, which nothing reads; the length of a row without a live request stays.
        width = max(map(len, tokens))
        padded = [[self.end_id] * width for _ in self.row_cache.lengths]
        wanted: list[int] = []
        for row, of_row in zip(self.rows, tokens, strict=True):
            padded[row][: len(of_row)] = of_row
            wanted += range(row * width, row * width + len(of_row))
        # Only drafts make it worth to select tokens within the pass: their logits take as long as a layer.
        logits = self._column_logits(padded, torch.tensor(wanted) if width > 1 else None)
        for row, of_row in zip(self.rows, tokens, strict=True):
            self.row_cache.lengths[row] += len(of_row)
        return logits if width > 1 or wanted == list(range(len(logits))) else logits[wanted]

    def _forget(self, index: int, tokens: int) -> None:
        self.row_cache.lengths[self.rows[index]] -= tokens

    def _column_logits(self, tokens: Sequence[Sequence[int]], wanted_W: torch.Tensor | None) -> torch.Tensor:
        """Logits after further tokens of every row of the cache, float64; of all, or only of ``wanted_W``."""
        return self._logits(AppendedColumns(self.row_cache, tokens, wanted_W))

    def _logits(self, new: NewTokens) -> torch.Tensor:
        """Logits after the wanted new tokens, float64."""
        hidden = forward.hidden_states(self.model, new.ids_N, new.positions_N, new.attend, new.wanted_W)
        self.counts["forwards"] += 1
        return vocabulary_logits(hidden, self.projection()).double()

    def _state(self, index: int) -> DialogCache:
        return self.row_cache.row(self.rows[index])

    def _keep(self, indices: list[int]) -> list[GenerationRequest]:
        self.rows = [self.rows[index] for index in indices]
        rows = len(self.row_cache.lengths)
        if len(self.rows) > self.rows_left * rows:
            return []
        # Few enough rows are left: keep as many as the next queued requests may have, and let these begin.
        room = max(len(self.rows), min(rows, self.queue.most_rows()))
        if room < rows:
            self.row_cache.keep_rows([*self.rows, *self._free_rows()[: room - len(self.rows)]])
            self.rows = list(range(len(self.rows)))
        return self.queue.take_fitting(room - len(self.rows), room)

    def _free_rows(self) -> list[int]:
        """Rows of the cache without a live request."""
        return [row for row in range(len(self.row_cache.lengths)) if row not in self.rows]
