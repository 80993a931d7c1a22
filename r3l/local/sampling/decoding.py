"""Decoding one batch of responses, token by token; and the reference decoder, by transformers' pass."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch

from r3l.core.batching import batches_by_length
from r3l.core.policy import Sampling
from r3l.core.seeds import uniforms
from r3l.local.model.forward import (
    DialogCache,
    Projection,
    cache_shape,
    vocabulary_logits,
    vocabulary_projection,
)
from r3l.local.sampling.prompt_lookup import PromptLookup


def tokens_in(state: DialogCache | None) -> int:
    """Number of tokens in a dialog's key-value cache; 0 for None."""
    return 0 if state is None else state.shape[3]


@dataclass
class GenerationRequest:
    """One response to sample, and its result.

    ``state``: keys and values of the dialog's encoded tokens (None: none); ``pending``: prompt tokens to
    encode first, at least one; ``stops``: token ids that end the response and are part of it; ``seed``: seed
    of its draws; ``turn``: number of the response in its dialog, from 1. A decoder fills ``ids`` and
    ``logprobs`` (nats, at the sampling temperature; if that is 0, at temperature 1) and replaces ``state``,
    which then holds all tokens but the last sampled one. With drafts ``said`` has the pending and the sampled
    tokens, and ``draft`` guesses of the next ones, of which the last pass encoded the first ``drafted``.
    """

    state: DialogCache | None
    pending: list[int]
    sampling: Sampling
    stops: Set[int]
    seed: int
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    turn: int = 1
    said: list[int] = field(default_factory=list)
    draft: list[int] = field(default_factory=list)
    drafted: int = 0

    @cached_property
    def draws(self) -> np.ndarray:
        """Uniform numbers in [0, 1), one for each token that may be sampled: ``max_tokens`` of them."""
        return uniforms(self.seed, self.sampling.max_tokens)

    def columns(self, at_most: bool = True) -> int:
        """Number of cache columns that the request needs: one per token of its dialog and of its response.

        Pending tokens count as part of the dialog. The response counts ``max_tokens`` if ``at_most``, else 1.
        """
        return tokens_in(self.state) + len(self.pending) + (self.sampling.max_tokens if at_most else 1)

    def finished(self) -> bool:
        """True if the response has ``max_tokens`` tokens, or its last token id is in ``stops``."""
        return len(self.ids) >= self.sampling.max_tokens or (bool(self.ids) and self.ids[-1] in self.stops)


class RequestQueue:
    """Requests that wait to be decoded; a batch begins with the shortest dialogs.

    ``budget``: most tokens of a batch: number of rows x longest dialog, with its longest possible response.
    A dialog that is longer than this is a batch by itself. Batches of similar lengths waste least.
    """

    def __init__(self, requests: Sequence[GenerationRequest] = (), budget: int = 0) -> None:
        self._requests = list(requests)
        self._budget = budget

    def __bool__(self) -> bool:
        return bool(self._requests)

    def take_batch(self) -> list[GenerationRequest]:
        """Remove the shortest requests, as many as one batch holds, and return them in the queue's order.

        That is the order of arrival at first; the requests that stay in the queue are sorted by length.
        Raises ValueError if the queue is empty.
        """
        first, *rest = batches_by_length([request.columns() for request in self._requests], self._budget)
        taken = [self._requests[k] for k in sorted(first)]
        self._requests = [self._requests[k] for part in rest for k in part]
        return taken

    def most_rows(self) -> int:
        """Most rows of a batch within the budget whose longest is the first request; 0 for an empty queue."""
        return self._budget // self._requests[0].columns() if self._requests else 0

    def take_fitting(self, free: int, rows: int) -> list[GenerationRequest]:
        """Remove and return at most ``free`` requests, from the first on, that fit a batch of ``rows`` rows.

        A request fits if ``rows`` dialogs of its length stay within the budget.
        """
        taken: list[GenerationRequest] = []
        while self._requests and len(taken) < free and rows * self._requests[0].columns() <= self._budget:
            taken.append(self._requests.pop(0))
        return taken


class Decoder(ABC):
    """Samples one batch of responses: a forward pass over the prompts' pending tokens, then one per token.

    A token is drawn by inverting its cumulative distribution, in float64, at a uniform number that is seeded
    only by the response and the token's place in it. So, apart from rounding, a row's tokens do not depend on
    the rest of its batch, nor on drafts. All decoders use the same draws, so that they can be compared with
    each other. ``end_id``: fills padding. ``counts``: gets ``encoded`` (prompt tokens) and ``forwards``
    (passes) added. ``lookup``: drafts tokens, so that a pass may sample several; None: one a pass.
    """

    def __init__(
        self,
        model: Any,
        requests: list[GenerationRequest],
        end_id: int,
        counts: defaultdict[str, float],
        lookup: PromptLookup | None = None,
    ) -> None:
        self.model = model
        self.end_id = end_id
        self.counts = counts
        self.lookup = lookup
        self.live = list(requests)  # requests that are not finished
        self.queue = RequestQueue()
        self._projection: Projection | None = None

    def run(
        self,
        watch: Callable[[int], None] = lambda live: None,
        queue: RequestQueue | None = None,
    ) -> None:
        """Sample all responses: fill each request's ``ids`` and ``logprobs`` and replace its ``state``.

        ``watch`` is called after every pass with the number of responses that got tokens. ``queue``: further
        requests; a decoder may take some from the queue and sample them in the rows of finished ones. What is
        left in the queue at the end was not sampled.
        """
        self.queue = queue or self.queue
        logits_N_V = self._begin(self.live)
        while True:
            # Sample one token for every live request, and further ones while its draft is right; then let
            # finished ones keep their caches. Their last token is not encoded: a next turn encodes it
            # together with its prompt.
            self._sample(logits_N_V)
            watch(len(self.live))
            finished = {index for index, request in enumerate(self.live) if request.finished()}
            for index in finished:
                self.live[index].state = self._state(index)
            if len(finished) == len(self.live):
                return

            # Drop finished requests; queued ones may begin in their rows.
            newcomers: list[GenerationRequest] = []
            if finished:
                left = [index for index in range(len(self.live)) if index not in finished]
                self.live = [self.live[index] for index in left]
                newcomers = self._keep(left)

            # Encode the last sampled tokens with their drafts, and the prompts of newcomers, which then are
            # part of the batch.
            if self.lookup:
                self._draft(self.lookup)
            logits_N_V = self._next([[r.ids[-1], *r.draft[: r.drafted]] for r in self.live])
            if newcomers:
                logits_N_V = torch.cat([logits_N_V, self._begin(newcomers)])
                self.live += newcomers

    def projection(self) -> Projection:
        """The model's vocabulary projection in float32 at least; on a CPU it is kept after the first call."""
        # The cast takes as long as all layers of a token.
        if self.model.device.type != "cpu":
            return vocabulary_projection(self.model)
        self._projection = self._projection or vocabulary_projection(self.model)
        return self._projection

    @abstractmethod
    def _begin(self, requests: Sequence[GenerationRequest]) -> torch.Tensor:
        """Logits after the pending tokens of ``requests``, float64, shape (B, V)."""

    @abstractmethod
    def _next(self, tokens: Sequence[Sequence[int]]) -> torch.Tensor:
        """Logits after each of the next ``tokens`` of each live request, float64, shape (N, V).

        N is the number of all of these tokens, in this order. Without ``lookup`` each request has one.
        """

    def _forget(self, index: int, tokens: int) -> None:
        """Drop the last encoded ``tokens`` of a live request: drafts that were not sampled."""
        raise NotImplementedError  # a decoder without drafts has none to drop

    @abstractmethod
    def _state(self, index: int) -> DialogCache:
        """Copy of a live request's caches."""

    @abstractmethod
    def _keep(self, indices: list[int]) -> list[GenerationRequest]:
        """Keep only the live requests ``indices``; return queued requests that take over the freed rows."""

    def _draft(self, lookup: PromptLookup) -> None:
        """Draft the next tokens of each live request, as many as are expected to pay."""
        length = lookup.best_length(len(self.live))
        for request in self.live:
            # The first token is guessed even if none is encoded, to know how often guesses are right.
            request.draft = lookup.draft(request.said, max(1, length))
            room = request.sampling.max_tokens - len(request.ids) - 1
            request.drafted = min(length, len(request.draft), room)

    def _sample(self, logits_N_V: torch.Tensor) -> None:
        """Sample tokens for each live request and append them, with their log-probs.

        ``logits_N_V`` has a row for the next token and one after each of the request's drafted tokens. Tokens
        are kept up to the first that is not the drafted one. Works in the memory of ``logits_N_V``: with
        150,000 words each copy takes as long as a layer.
        """
        # Temperature 0 is greedy: the best token, with its log-prob at temperature 1.
        device = logits_N_V.device
        of_N = [request for request in self.live for _ in range(1 + request.drafted)]
        temperature = torch.tensor([request.sampling.temperature for request in of_N], device=device)
        greedy_N = temperature == 0
        scale = torch.where(greedy_N, torch.ones_like(temperature), temperature)[:, None]
        best_N = logits_N_V.argmax(-1) if greedy_N.any() else None
        logp_N_V = torch.log_softmax(logits_N_V.div_(scale), dim=-1)

        # Invert the cumulative distribution at each token's own draw. Its last entry may be 1 only up to
        # rounding, so the draw is scaled by it.
        places = [len(request.ids) + k for request in self.live for k in range(1 + request.drafted)]
        drawn = [request.draws[place] for request, place in zip(of_N, places, strict=True)]
        draws = torch.tensor(drawn, device=device)
        cumulative_N_V = logp_N_V.exp()
        torch.cumsum(cumulative_N_V, -1, out=cumulative_N_V)
        scaled_N_1 = draws[:, None] * cumulative_N_V[:, -1:]
        picks = torch.searchsorted(cumulative_N_V, scaled_N_1, right=True).squeeze(1)
        tokens_N = picks.clamp(max=logits_N_V.shape[1] - 1)
        if best_N is not None:
            tokens_N = torch.where(greedy_N, best_N, tokens_N)
        logprobs_N = logp_N_V.gather(1, tokens_N[:, None]).squeeze(1)
        sampled = zip(tokens_N.tolist(), logprobs_N.tolist(), strict=True)
        for index, request in enumerate(self.live):
            self._accept(index, [next(sampled) for _ in range(1 + request.drafted)])

    def _accept(self, index: int, sampled: Sequence[tuple[int, float]]) -> None:
        """Append to a live request its sampled tokens and log-probs, up to the first that was not drafted."""
        request = self.live[index]
        before = len(request.ids)
        guesses = iter(request.draft)
        for token, logprob in sampled:
            request.ids.append(token)
            request.logprobs.append(logprob)
            guess = next(guesses, None)
            if self.lookup and guess is not None:
                self.lookup.note(token == guess)
            if token != guess or request.finished():
                break
        accepted = len(request.ids) - before
        if accepted < len(sampled):
            self._forget(index, len(sampled) - accepted)
        if self.lookup:
            known = len(request.said)
            request.said += [*request.pending, *request.ids][known:]
            self.lookup.learn(request.said, known)


class ReferenceDecoder(Decoder):
    """Decoder by transformers' forward pass, for architectures that the packed pass cannot compute.

    Rows are padded on the left and share one PaddedCache. Rows of finished requests are dropped; queued
    requests do not take their place.
    """

    def __init__(
        self,
        model: Any,
        requests: list[GenerationRequest],
        end_id: int,
        counts: defaultdict[str, float],
    ) -> None:
        super().__init__(model, requests, end_id, counts)
        pending = max(len(request.pending) for request in requests)
        budget = max(request.sampling.max_tokens for request in requests)
        self.cache = PaddedCache([request.state for request in requests], pending + budget, model)
        self.positions = torch.tensor([tokens_in(request.state) for request in requests], device=model.device)

    def _begin(self, requests: Sequence[GenerationRequest]) -> torch.Tensor:
        width = max(len(request.pending) for request in requests)
        ids = torch.full((len(requests), width), self.end_id)
        valid = torch.zeros(len(requests), width, dtype=torch.bool)
        for row, request in enumerate(requests):
            ids[row, width - len(request.pending) :] = torch.tensor(request.pending)
            valid[row, width - len(request.pending) :] = True
            self.counts["encoded"] += len(request.pending)
        return self._forward(ids.to(self.model.device), valid.to(self.model.device))

    def _next(self, tokens: Sequence[Sequence[int]]) -> torch.Tensor:
        tokens_B_1 = torch.tensor(tokens, device=self.model.device)
        return self._forward(tokens_B_1, torch.ones_like(tokens_B_1, dtype=torch.bool))

    def _forward(self, ids_B_C: torch.Tensor, valid_B_C: torch.Tensor) -> torch.Tensor:
        """Logits after the last column, float64, shape (B, V)."""
        self.cache.begin(valid_B_C)
        # A row's positions count its own tokens: padding takes none.
        steps_B_C = valid_B_C.long().cumsum(1)
        positions = (self.positions[:, None] + steps_B_C - 1).clamp(min=0)
        self.positions = self.positions + steps_B_C[:, -1]
        hidden_B_C_H = self.model.model(
            input_ids=ids_B_C,
            attention_mask=self._masks(),
            position_ids=positions,
            past_key_values=self.cache,
            use_cache=True,
        ).last_hidden_state
        self.counts["forwards"] += 1
        return vocabulary_logits(hidden_B_C_H[:, -1:], self.projection())[:, 0].double()

    def _masks(self) -> torch.Tensor | dict[str, torch.Tensor]:
        """Masks of the new columns, shape (B, 1, C, T), in the form in which the layers expect them.

        transformers makes no mask itself if it is given one, so a layer with a sliding window needs its
        own.
        """
        config = self.model.config

        def mask(window: int | None) -> torch.Tensor:
            seen = self.cache.seen(window)
            if config._attn_implementation != "eager":
                return seen
            unseen = torch.finfo(self.model.dtype).min  # eager attention adds the mask to its scores
            zeros = torch.zeros(seen.shape, dtype=self.model.dtype, device=seen.device)
            return zeros.masked_fill_(~seen, unseen)

        window = getattr(config, "sliding_window", None)
        windows = {"full_attention": None, "sliding_attention": window}
        if layers := getattr(config, "layer_types", None):
            return {kind: mask(windows[kind]) for kind in {*layers}}
        return mask(window)

    def _state(self, index: int) -> DialogCache:
        return self.cache.row(index)

    def _keep(self, indices: list[int]) -> list[GenerationRequest]:
        rows = torch.tensor(indices, device=self.positions.device)
        self.cache.keep_rows(rows)
        self.positions = self.positions.index_select(0, rows)
        return []  # rows are aligned by their ends, so no request can begin later than the others


class PaddedCache:
    """Keys and values of a batch for transformers' forward pass, with ``update`` and ``get_seq_length``.

    Rows are right-aligned: the columns are [padding | encoded prefix], followed by ``new_columns`` columns
    that forward passes fill; ``valid_B_T`` is False on padding. ``prefixes``: the cache of each
    row's dialog, None for an empty one. ``like``: the model, whose sizes, type and device it has. (Attention
    layers call only these two methods of transformers' Cache.)
    """

    def __init__(self, prefixes: Sequence[DialogCache | None], new_columns: int, like: Any) -> None:
        lengths = [tokens_in(prefix) for prefix in prefixes]
        prefix_columns = max(lengths)
        self.filled = prefix_columns
        shape = cache_shape(like.config, len(prefixes), prefix_columns + new_columns)
        self.layers = torch.zeros(shape, dtype=like.dtype, device=like.device)
        self.valid_B_T = torch.zeros(len(prefixes), shape[4], dtype=torch.bool, device=like.device)
        for row, (prefix, length) in enumerate(zip(prefixes, lengths, strict=True)):
            if prefix is None or not length:
                continue
            self.valid_B_T[row, prefix_columns - length : prefix_columns] = True
            self.layers[:, :, row, :, prefix_columns - length : prefix_columns] = prefix

    def begin(self, valid_B_C: torch.Tensor) -> None:
        """Open C new columns for the next forward pass; ``valid_B_C``: False where a row has padding."""
        self._start = self.filled
        self.filled += valid_B_C.shape[1]
        self.valid_B_T[:, self._start : self.filled] = valid_B_C

    def seen(self, window: int | None = None) -> torch.Tensor:
        """True where a new token attends to a column, bool, shape (B, 1, C new columns, filled columns).

        A token attends to itself and all earlier tokens of its row, never to padding; with a sliding
        ``window`` only to itself and the last ``window - 1`` tokens.
        """
        valid_B_T = self.valid_B_T[:, : self.filled]
        columns = self.filled - self._start
        seen = valid_B_T[:, None, None].expand(-1, 1, columns, -1).clone()
        causal = torch.ones(columns, columns, dtype=torch.bool, device=seen.device).tril()
        seen[..., self._start :] &= causal
        if window is not None:  # it counts tokens, not columns, some of which are padding
            count_B_T = valid_B_T.long().cumsum(1)
            seen &= (count_B_T[:, self._start :, None] - count_B_T[:, None] < window)[:, None]
        # A padding query must attend to something, or softmax yields NaN; its output is never read.
        seen[..., self._start :] |= torch.eye(columns, dtype=torch.bool, device=seen.device)
        return seen

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store one layer's keys and values of the new columns; return the layer's for all filled columns.

        Called by each attention layer of transformers.
        """
        layer = self.layers[layer_idx][:, : len(keys)]
        layer[0, :, :, self._start : self.filled] = keys
        layer[1, :, :, self._start : self.filled] = values
        return layer[0, :, :, : self.filled], layer[1, :, :, : self.filled]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Number of columns that were filled before the forward pass in progress, the same in all layers."""
        return self._start

    def row(self, row: int) -> DialogCache:
        """A copy of one row's keys and values without padding, to keep as the dialog's state."""
        keep = self.valid_B_T[row, : self.filled].nonzero().squeeze(1)
        return self.layers[:, :, row].index_select(3, keep)

    def keep_rows(self, rows: torch.Tensor) -> None:
        """Keep only the rows with these indices, in this order; drop all others."""
        self.layers = self.layers.index_select(2, rows)
        self.valid_B_T = self.valid_B_T.index_select(0, rows)
