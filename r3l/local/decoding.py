"""Decoding: one batch of responses, token by token."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch

from r3l.core.policy import Sampling
from r3l.core.seeds import uniforms
from r3l.local.kv_cache import BatchCache, LayerState
from r3l.local.precision import vocabulary_logits


def tokens_in(state: Sequence[LayerState] | None) -> int:
    """How many tokens a dialog's caches hold."""
    return state[0].shape[2] if state else 0


@dataclass
class GenerationRequest:
    """One response to sample: ``state`` caches what is encoded, ``pending`` is not yet, any of ``stops`` is the last.

    ``seed``: of the draws of its tokens. The decoder fills ``ids`` and ``logprobs`` and puts a new ``state``, which
    holds all tokens but the last sampled one.
    """

    state: list[LayerState] | None
    pending: list[int]
    sampling: Sampling
    stops: Set[int]
    seed: int
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    @cached_property
    def draws(self) -> np.ndarray:
        """A uniform draw for each token."""
        return uniforms(self.seed, self.sampling.max_tokens)

    def columns(self) -> int:
        """Tokens of the dialog when the response is as long as it may be."""
        return tokens_in(self.state) + len(self.pending) + self.sampling.max_tokens

    def finished(self) -> bool:
        """Whether the last token has been sampled."""
        return len(self.ids) >= self.sampling.max_tokens or (bool(self.ids) and self.ids[-1] in self.stops)


class Decoder:
    """Samples one batch of responses: one padded forward pass over the pending tokens, then token by token."""

    def __init__(
        self, model: Any, requests: list[GenerationRequest], end_id: int, counts: defaultdict[str, float]
    ) -> None:
        self.model, self.end_id, self.counts = model, end_id, counts
        self.live = list(requests)  # a row each; those that have finished leave
        prefixes = [request.state for request in requests]
        pending = max(len(request.pending) for request in requests)
        budget = max(request.sampling.max_tokens for request in requests)
        self.cache = self._cache(prefixes, pending + budget)
        self.positions = torch.tensor([tokens_in(request.state) for request in requests], device=model.device)

    def _cache(self, prefixes: Sequence[list[LayerState] | None], new_columns: int) -> BatchCache:
        return BatchCache(prefixes, new_columns, self.model)

    def run(self) -> None:
        """Fill every request's ids and log-probs and hand it the new caches."""
        logits_B_V = self._first()
        while True:
            tokens = self._sample(logits_B_V)
            finished = {row for row, request in enumerate(self.live) if self._finish(row, request)}
            if len(finished) == len(self.live):
                return
            if finished:
                tokens = self._drop(finished, tokens)
            logits_B_V = self._next(tokens)

    def _first(self) -> torch.Tensor:
        """Logits after the pending tokens."""
        return self._forward(*self._padded_pending())

    def _padded_pending(self) -> tuple[torch.Tensor, torch.Tensor]:
        width = max(len(request.pending) for request in self.live)
        ids = torch.full((len(self.live), width), self.end_id)
        valid = torch.zeros(len(self.live), width, dtype=torch.bool)
        for row, request in enumerate(self.live):
            ids[row, width - len(request.pending) :] = torch.tensor(request.pending)
            valid[row, width - len(request.pending) :] = True
            self.counts["encoded"] += len(request.pending)
        return ids.to(self.model.device), valid.to(self.model.device)

    def _next(self, tokens_B: torch.Tensor) -> torch.Tensor:
        """Logits after one more token a row."""
        return self._forward(tokens_B[:, None], torch.ones_like(tokens_B, dtype=torch.bool)[:, None])

    def _forward(self, ids_B_C: torch.Tensor, valid_B_C: torch.Tensor) -> torch.Tensor:
        """Logits after the last column, float64, shape (B, V)."""
        mask = self.cache.begin(valid_B_C)
        steps_B_C = valid_B_C.long().cumsum(1)
        positions = (self.positions[:, None] + steps_B_C - 1).clamp(min=0)
        self.positions = self.positions + steps_B_C[:, -1]
        hidden_B_C_H = self.model.model(
            input_ids=ids_B_C,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=self.cache,
            use_cache=True,
        ).last_hidden_state
        self.counts["forwards"] += 1
        return vocabulary_logits(self.model, hidden_B_C_H[:, -1:])[:, 0].double()

    def _sample(self, logits_B_V: torch.Tensor) -> torch.Tensor:
        """One token a row by inverting the cumulative distribution at the row's own uniform draw."""
        temperature = torch.tensor([request.sampling.temperature for request in self.live], device=logits_B_V.device)
        greedy_B = temperature == 0
        scale = torch.where(greedy_B, torch.ones_like(temperature), temperature)[:, None]
        logp_B_V = torch.log_softmax(logits_B_V / scale, dim=-1)
        draws = torch.tensor([request.draws[len(request.ids)] for request in self.live], device=logits_B_V.device)
        cumulative_B_V = logp_B_V.exp().cumsum(-1)
        picks = torch.searchsorted(cumulative_B_V, draws[:, None] * cumulative_B_V[:, -1:], right=True).squeeze(1)
        tokens_B = torch.where(greedy_B, logits_B_V.argmax(-1), picks.clamp(max=logits_B_V.shape[1] - 1))
        logprobs_B = logp_B_V.gather(1, tokens_B[:, None]).squeeze(1)
        for request, token, logprob in zip(self.live, tokens_B.tolist(), logprobs_B.tolist(), strict=True):
            request.ids.append(token)
            request.logprobs.append(logprob)
        return tokens_B

    def _finish(self, row: int, request: GenerationRequest) -> bool:
        """Whether a row's request is finished; it then takes its cache (the last token is not encoded yet)."""
        if not request.finished():
            return False
        request.state = self._state(row)
        return True

    def _state(self, row: int) -> list[LayerState]:
        return self.cache.row(row)

    def _drop(self, finished: Set[int], tokens_B: torch.Tensor) -> torch.Tensor:
        """Go on without the rows of ``finished``; the tokens of those left."""
        rows_left = [row for row in range(len(self.live)) if row not in finished]
        self.live = [self.live[row] for row in rows_left]
        rows = torch.tensor(rows_left, device=tokens_B.device)
        self.cache.keep_rows(rows)
        self.positions = self.positions.index_select(0, rows)
        return tokens_B.index_select(0, rows)
