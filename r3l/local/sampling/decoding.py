"""Decoding: one batch of responses, token by token; and the reference decoder, by the forward pass of transformers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch

from r3l.core.batching import packed
from r3l.core.policy import Sampling
from r3l.core.seeds import uniforms
from r3l.local.model.forward import DialogCache, cache_shape
from r3l.local.model.precision import Projection, vocabulary_logits, vocabulary_projection


def tokens_in(state: DialogCache | None) -> int:
    """How many tokens a dialog's caches hold."""
    return 0 if state is None else state.shape[3]


@dataclass
class GenerationRequest:
    """One response to sample: ``state`` caches what is encoded, ``pending`` is not yet, any of ``stops`` is the last.

    ``seed``: of the draws of its tokens; ``turn``: its place in its dialog, from 1. The decoder fills ``ids`` and
    ``logprobs`` and puts a new ``state``, which holds all tokens but the last sampled one.
    """

    state: DialogCache | None
    pending: list[int]
    sampling: Sampling
    stops: Set[int]
    seed: int
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    turn: int = 1

    @cached_property
    def draws(self) -> np.ndarray:
        """A uniform draw for each token."""
        return uniforms(self.seed, self.sampling.max_tokens)

    def columns(self, at_most: bool = True) -> int:
        """Tokens of the dialog when the response is as long as it may be, or before its second token."""
        return tokens_in(self.state) + len(self.pending) + (self.sampling.max_tokens if at_most else 1)

    def finished(self) -> bool:
        """Whether the last token has been sampled."""
        return len(self.ids) >= self.sampling.max_tokens or (bool(self.ids) and self.ids[-1] in self.stops)


class Waiting:
    """Responses that no batch has yet, shortest dialog first.

    ``budget``: rows times the longest dialog that a batch may have in tokens; a longer dialog goes alone.
    """

    def __init__(self, requests: Sequence[GenerationRequest] = (), budget: int = 0) -> None:
        self._requests, self._budget = list(requests), budget

    def __bool__(self) -> bool:
        return bool(self._requests)

    def batch(self) -> list[GenerationRequest]:
        """Take those that a batch begins with, in the order in which they came."""
        first, *rest = packed([request.columns() for request in self._requests], self._budget)
        taken = [self._requests[k] for k in sorted(first)]
        self._requests = [self._requests[k] for part in rest for k in part]
        return taken

    def most_rows(self) -> int:
        """Of a batch in which the next one takes part; 0 where none is left."""
        return self._budget // self._requests[0].columns() if self._requests else 0

    def fitting(self, free: int, rows: int) -> list[GenerationRequest]:
        """Take those that go on in ``free`` of a batch's ``rows``."""
        taken: list[GenerationRequest] = []
        while self._requests and len(taken) < free and rows * self._requests[0].columns() <= self._budget:
            taken.append(self._requests.pop(0))
        return taken


class Decoder(ABC):
    """Samples one batch of responses: one forward pass over the pending tokens, then token by token.

    A token is drawn by inverting its cumulative distribution at a uniform number that is addressed by the response
    alone, in float64. So what a row samples does not depend on who shares its batch, but for rounding; and the same
    draws serve every way to compute, which is how these are compared.
    """

    def __init__(
        self, model: Any, requests: list[GenerationRequest], end_id: int, counts: defaultdict[str, float]
    ) -> None:
        self.model, self.end_id, self.counts = model, end_id, counts
        self.live = list(requests)  # those that have finished leave
        self.waiting = Waiting()
        self._projection: Projection | None = None

    def run(self, watch: Callable[[int], None] = lambda live: None, waiting: Waiting | None = None) -> None:
        """Fill every request's ids and log-probs and give it its new caches.

        ``watch`` is called after every token with the number of responses that were sampled. ``waiting``: requests of
        which some may be served where others have finished; what is left there was not.
        """
        self.waiting = waiting or self.waiting
        logits_B_V = self._begin(self.live)
        while True:
            tokens = self._sample(logits_B_V)
            watch(len(self.live))
            finished = {place for place, request in enumerate(self.live) if request.finished()}
            for place in finished:  # their last token is not encoded yet
                self.live[place].state = self._state(place)
            if len(finished) == len(self.live):
                return
            newcomers: list[GenerationRequest] = []
            if finished:
                left = [place for place in range(len(self.live)) if place not in finished]
                self.live = [self.live[place] for place in left]
                tokens = tokens[left]
                newcomers = self._keep(left)
            logits_B_V = self._next(tokens)
            if newcomers:
                logits_B_V = torch.cat([logits_B_V, self._begin(newcomers)])
                self.live += newcomers

    def projection(self) -> Projection:
        """The vocabulary projection: on a CPU widened once a batch, which takes as long as all layers of a token."""
        if self.model.device.type != "cpu":
            return vocabulary_projection(self.model)
        self._projection = self._projection or vocabulary_projection(self.model)
        return self._projection

    @abstractmethod
    def _begin(self, requests: Sequence[GenerationRequest]) -> torch.Tensor:
        """Logits after the pending tokens of ``requests``, float64, shape (B, V)."""

    @abstractmethod
    def _next(self, tokens_B: torch.Tensor) -> torch.Tensor:
        """Logits after one more token of each live request, float64, shape (B, V)."""

    @abstractmethod
    def _state(self, place: int) -> DialogCache:
        """The caches of a live request, copied out."""

    @abstractmethod
    def _keep(self, places: list[int]) -> list[GenerationRequest]:
        """Go on with these of the live requests alone; those of ``waiting`` that begin in the place of others."""

    def _sample(self, logits_B_V: torch.Tensor) -> torch.Tensor:
        """One token a request by inverting the cumulative distribution at the request's own uniform draw."""
        temperature = torch.tensor([request.sampling.temperature for request in self.live], device=logits_B_V.device)
        greedy_B = temperature == 0
        scale = torch.where(greedy_B, torch.ones_like(temperature), temperature)[:, None]
        best_B = logits_B_V.argmax(-1) if greedy_B.any() else None
        logp_B_V = torch.log_softmax(logits_B_V.div_(scale), dim=-1)
        draws = torch.tensor([request.draws[len(request.ids)] for request in self.live], device=logits_B_V.device)
        cumulative_B_V = logp_B_V.exp()
        torch.cumsum(cumulative_B_V, -1, out=cumulative_B_V)  # of 150,000 words each copy takes as long as a layer
        picks = torch.searchsorted(cumulative_B_V, draws[:, None] * cumulative_B_V[:, -1:], right=True).squeeze(1)
        tokens_B = picks.clamp(max=logits_B_V.shape[1] - 1)
        if best_B is not None:
            tokens_B = torch.where(greedy_B, best_B, tokens_B)
        logprobs_B = logp_B_V.gather(1, tokens_B[:, None]).squeeze(1)
        for request, token, logprob in zip(self.live, tokens_B.tolist(), logprobs_B.tolist(), strict=True):
            request.ids.append(token)
            request.logprobs.append(logprob)
        return tokens_B


class ReferenceDecoder(Decoder):
    """By the forward pass of transformers, for all architectures that ``check_architecture`` accepts: rows padded
    on the left, one cache for the batch."""

    def __init__(
        self, model: Any, requests: list[GenerationRequest], end_id: int, counts: defaultdict[str, float]
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

    def _next(self, tokens_B: torch.Tensor) -> torch.Tensor:
        return self._forward(tokens_B[:, None], torch.ones_like(tokens_B, dtype=torch.bool)[:, None])

    def _forward(self, ids_B_C: torch.Tensor, valid_B_C: torch.Tensor) -> torch.Tensor:
        """Logits after the last column, float64, shape (B, V)."""
        self.cache.begin(valid_B_C)
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
        """What the new columns see, shape (B, 1, C, T), as the layers want it: transformers makes no mask where it is
        given one, so that a layer that sees a window alone needs its own."""
        config = self.model.config
        window = getattr(config, "sliding_window", None)
        kinds = {"full_attention": None, "sliding_attention": window}
        if layers := getattr(config, "layer_types", None):
            return {kind: self._mask(kinds[kind]) for kind in {*layers}}
        return self._mask(window)

    def _mask(self, window: int | None) -> torch.Tensor:
        seen = self.cache.seen(window)
        if self.model.config._attn_implementation != "eager":
            return seen
        unseen = torch.finfo(self.model.dtype).min  # which is added to the scores
        return torch.zeros(seen.shape, dtype=self.model.dtype, device=seen.device).masked_fill_(~seen, unseen)

    def _state(self, place: int) -> DialogCache:
        return self.cache.row(place)

    def _keep(self, places: list[int]) -> list[GenerationRequest]:
        rows = torch.tensor(places, device=self.positions.device)
        self.cache.keep_rows(rows)
        self.positions = self.positions.index_select(0, rows)
        return []  # its rows are aligned by their ends: nobody can begin later


class PaddedCache:
    """The cache that a batch decodes with. Rows are right-aligned; ``valid_B_T`` says which columns are real.

    Columns: [padding | encoded prefix] then, appended by the model's forward passes, new columns. It speaks
    the part of transformers' Cache interface that attention layers call (``update``, ``get_seq_length``).
    """

    def __init__(self, prefixes: Sequence[DialogCache | None], new_columns: int, like: Any) -> None:
        lengths = [tokens_in(prefix) for prefix in prefixes]
        self.filled = prefix_columns = max(lengths)
        shape = cache_shape(like.config, len(prefixes), prefix_columns + new_columns)
        self.layers = torch.zeros(shape, dtype=like.dtype, device=like.device)
        self.valid_B_T = torch.zeros(len(prefixes), shape[4], dtype=torch.bool, device=like.device)
        for row, (prefix, length) in enumerate(zip(prefixes, lengths, strict=True)):
            if prefix is None or not length:
                continue
            self.valid_B_T[row, prefix_columns - length : prefix_columns] = True
            self.layers[:, :, row, :, prefix_columns - length : prefix_columns] = prefix

    def begin(self, valid_B_C: torch.Tensor) -> None:
        """Announce C new columns."""
        self._start, self.filled = self.filled, self.filled + valid_B_C.shape[1]
        self.valid_B_T[:, self._start : self.filled] = valid_B_C

    def seen(self, window: int | None = None) -> torch.Tensor:
        """What the new columns attend to, bool, shape (B, 1, C, filled): themselves and tokens before, of which only
        the last ``window - 1`` where there is one."""
        valid_B_T = self.valid_B_T[:, : self.filled]
        columns = self.filled - self._start
        seen = valid_B_T[:, None, None].expand(-1, 1, columns, -1).clone()
        causal = torch.ones(columns, columns, dtype=torch.bool, device=seen.device).tril()
        seen[..., self._start :] &= causal
        if window is not None:  # of tokens, not of columns, between which there is padding
            places_B_T = valid_B_T.long().cumsum(1)
            seen &= (places_B_T[:, self._start :, None] - places_B_T[:, None] < window)[:, None]
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

    def row(self, row: int) -> DialogCache:
        """The valid columns of one row, copied out: the dialog's new state."""
        keep = self.valid_B_T[row, : self.filled].nonzero().squeeze(1)
        return self.layers[:, :, row].index_select(3, keep)

    def keep_rows(self, rows: torch.Tensor) -> None:
        """Drop all rows but ``rows`` (when others have finished)."""
        self.layers = self.layers.index_select(2, rows)
        self.valid_B_T = self.valid_B_T.index_select(0, rows)
