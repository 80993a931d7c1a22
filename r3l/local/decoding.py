"""Decoding: one batch of responses, token by token; eagerly, or by a compiled step of fixed shape."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from r3l.core.policy import Sampling
from r3l.local.kv_cache import BatchCache, Buffers, Column, FixedCache, LayerState
from r3l.local.precision import vocabulary_logits


def tokens_in(state: list[LayerState] | None) -> int:
    """How many tokens a dialog's caches hold."""
    return state[0].shape[2] if state else 0


@dataclass
class Job:
    """One response to sample: ``state`` caches what is encoded, ``pending`` is not yet, any of ``stops`` is the last.

    ``uniforms`` has a draw for each token. The decoder fills ``ids`` and ``logprobs`` and puts a new ``state``, which
    holds all tokens but the last sampled one.
    """

    state: list[LayerState] | None
    pending: list[int]
    sampling: Sampling
    stops: Set[int]
    uniforms: np.ndarray
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    def columns(self) -> int:
        """Tokens of the dialog when the response is as long as it may be."""
        return tokens_in(self.state) + len(self.pending) + self.sampling.max_tokens

    def finished(self) -> bool:
        """Whether the last token has been sampled."""
        return len(self.ids) >= self.sampling.max_tokens or (bool(self.ids) and self.ids[-1] in self.stops)


class Decoder:
    """Samples one batch of responses: one padded forward pass over the pending tokens, then token by token."""

    def __init__(self, model: Any, jobs: list[Job], end_id: int, meter: defaultdict[str, float]) -> None:
        self.model, self.end_id, self.meter = model, end_id, meter
        self.jobs = jobs
        self.live = list(range(len(jobs)))  # batch row -> job
        prefixes = [job.state for job in jobs]
        pending = max(len(job.pending) for job in jobs)
        budget = max(job.sampling.max_tokens for job in jobs)
        self.cache = self._cache(prefixes, pending + budget)
        self.positions = torch.tensor([tokens_in(job.state) for job in jobs], device=model.device)

    def _cache(self, prefixes: Sequence[list[LayerState] | None], new_columns: int) -> BatchCache:
        return BatchCache(prefixes, new_columns, self.model)

    def run(self) -> None:
        """Fill every job's ids and log-probs and hand it the new caches."""
        logits_B_V = self._forward(*self._padded_pending())
        while True:
            tokens = self._sample(logits_B_V)
            done = [row for row, j in enumerate(self.live) if self._retire(row, j)]
            if len(done) == len(self.live):
                return
            if done:
                tokens = self._drop(done, tokens)
            logits_B_V = self._next(tokens)

    def _padded_pending(self) -> tuple[torch.Tensor, torch.Tensor]:
        width = max(len(job.pending) for job in self.jobs)
        ids = torch.full((len(self.jobs), width), self.end_id)
        valid = torch.zeros(len(self.jobs), width, dtype=torch.bool)
        for row, job in enumerate(self.jobs):
            ids[row, width - len(job.pending) :] = torch.tensor(job.pending)
            valid[row, width - len(job.pending) :] = True
            self.meter["encoded"] += len(job.pending)
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
        self.meter["forwards"] += 1
        return vocabulary_logits(self.model, hidden_B_C_H[:, -1:])[:, 0].double()

    def _sample(self, logits_B_V: torch.Tensor) -> torch.Tensor:
        """One token a row by inverting the cumulative distribution at the row's own uniform draw."""
        jobs = [self.jobs[j] for j in self.live]
        temperature = torch.tensor([job.sampling.temperature for job in jobs], device=logits_B_V.device)
        greedy_B = temperature == 0
        scale = torch.where(greedy_B, torch.ones_like(temperature), temperature)[:, None]
        logp_B_V = torch.log_softmax(logits_B_V / scale, dim=-1)
        draws = torch.tensor([job.uniforms[len(job.ids)] for job in jobs], device=logits_B_V.device)
        cumulative = logp_B_V.exp().cumsum(-1)
        picks = torch.searchsorted(cumulative, draws[:, None] * cumulative[:, -1:], right=True).squeeze(1)
        tokens = torch.where(greedy_B, logits_B_V.argmax(-1), picks.clamp(max=logits_B_V.shape[1] - 1))
        chosen = logp_B_V.gather(1, tokens[:, None]).squeeze(1)
        for job, token, logprob in zip(jobs, tokens.tolist(), chosen.tolist(), strict=True):
            job.ids.append(token)
            job.logprobs.append(logprob)
        return tokens

    def _retire(self, row: int, j: int) -> bool:
        """Whether row's job is done; a done job takes its cache (the last token is not encoded yet)."""
        job = self.jobs[j]
        if not job.finished():
            return False
        job.state = self.cache.row(row)
        return True

    def _drop(self, done: list[int], tokens: torch.Tensor) -> torch.Tensor:
        keep: Sequence[int] = [row for row in range(len(self.live)) if row not in set(done)]
        rows = torch.tensor(keep, device=tokens.device)
        self.live = [self.live[row] for row in keep]
        self.cache.keep_rows(rows)
        self.positions = self.positions.index_select(0, rows)
        return tokens.index_select(0, rows)


class FixedStep:
    """One more token for every row of a FixedCache, by a function that is compiled once a shape.

    On a GPU each shape becomes a CUDA graph: eager decoding of a small model waits for its kernels to be launched.
    Keeps the buffers from batch to batch. ``compiled=False`` runs the same function as it is.
    """

    def __init__(self, device: torch.device, compiled: bool = True) -> None:
        self.buffers = Buffers()
        mode = "reduce-overhead" if device.type == "cuda" else None
        self._column = torch.compile(_column, fullgraph=True, dynamic=False, mode=mode) if compiled else _column

    def __call__(
        self, model: Any, cache: FixedCache, tokens_B: torch.Tensor, positions_B: torch.Tensor
    ) -> torch.Tensor:
        """Hidden states after the new tokens, shape (B, H)."""
        cursor, mask = cache.begin_column()
        column = (cache.spread(tokens_B), mask, cache.spread(positions_B))
        with torch._dynamo.config.patch(recompile_limit=SHAPES):
            hidden_R_1_H = self._column(model, cache.layers, cursor, *column)
        return hidden_R_1_H[cache.rows_B, 0]


SHAPES = 64  # compiled shapes at most; our choice: 8 sizes of batch, 8 lengths


def _column(
    model: Any,
    layers: list[LayerState],
    cursor: torch.Tensor,
    ids_R_1: torch.Tensor,
    mask: torch.Tensor,
    positions: torch.Tensor,
) -> torch.Tensor:
    hidden: torch.Tensor = model.model(
        input_ids=ids_R_1,
        attention_mask=mask,
        position_ids=positions,
        past_key_values=Column(layers, cursor),
        use_cache=True,
    ).last_hidden_state
    return hidden


class FixedDecoder(Decoder):
    """The pending tokens eagerly, then ``step`` token by token."""

    cache: FixedCache

    def __init__(
        self, step: FixedStep, model: Any, jobs: list[Job], end_id: int, meter: defaultdict[str, float]
    ) -> None:
        self._step = step
        super().__init__(model, jobs, end_id, meter)

    def _cache(self, prefixes: Sequence[list[LayerState] | None], new_columns: int) -> BatchCache:
        return FixedCache(prefixes, new_columns, self.model, self._step.buffers)

    def _next(self, tokens_B: torch.Tensor) -> torch.Tensor:
        hidden_B_H = self._step(self.model, self.cache, tokens_B, self.positions)
        self.positions = self.positions + 1
        self.meter["forwards"] += 1
        return vocabulary_logits(self.model, hidden_B_H).double()
