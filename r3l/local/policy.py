"""Local policy: batched sampling over many live dialogs with one transformers model.

A dialog's cache is kept between turns and shared by its forks, so a token is encoded once. Each response's
randomness is one Philox stream addressed by (run, step, task, member, turn), so a sample does not depend on who
shares the batch (up to floating-point rounding, which ``Lockstep`` makes reproducible too).
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from r3l.core.dialog import TokenDialog
from r3l.core.lockstep import Lockstep
from r3l.core.policy import PHASES, Completion, Samples, Sampling
from r3l.core.render import ChatRenderer
from r3l.core.seeds import Address, seed_of, uniforms
from r3l.local.cache import BatchCache, LayerState


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

    def finished(self) -> bool:
        """Whether the last token has been sampled."""
        return len(self.ids) >= self.sampling.max_tokens or (bool(self.ids) and self.ids[-1] in self.stops)


class LocalPolicy:
    """Opens dialogs with ``model`` (a causal LM of transformers). ``max_context`` counts tokens of a dialog.

    ``samples``: ``trajectory`` dialogs only ever append tokens; ``turn`` dialogs are rendered anew by the chat template
    at every turn, for templates that drop earlier thoughts, and encode what differs.
    ``keep_cache=False`` encodes every dialog anew at each turn: the alternative ``r3l bench rollout`` measures.
    ``meter`` counts prompt tokens ``encoded``, those of them that were ``fresh``, ``forwards``, and seconds by phase.
    """

    def __init__(
        self, model: Any, tokenizer: Any, max_context: int, keep_cache: bool = True, samples: Samples = "trajectory"
    ) -> None:
        self.model = model
        self.renderer = ChatRenderer(tokenizer)
        self.max_context = max_context
        self.keep_cache = keep_cache
        self.samples = samples
        self.lockstep = Lockstep(self._serve)
        self.meter: defaultdict[str, float] = defaultdict(float)

    def open(self) -> LocalConversation:
        """An empty dialog."""
        return LocalConversation(self)

    @torch.inference_mode()
    def _serve(self, jobs: list[Job]) -> list[Job]:
        began = time.perf_counter()
        self.model.eval()
        Decoder(self.model, jobs, self.renderer.end_id, self.meter).run()
        self.meter[f"seconds/{PHASES[jobs[0].sampling.phase]}"] += time.perf_counter() - began
        return jobs


class LocalConversation(TokenDialog):
    """A dialog of the local policy, with the caches of what is encoded."""

    _policy: LocalPolicy

    def __init__(self, policy: LocalPolicy) -> None:
        super().__init__(policy)
        self._state: list[LayerState] | None = None  # caches of the first `encoded` tokens
        self._last_is_new = False  # the last response's final token was sampled here and is not encoded yet

    @property
    def encoded(self) -> int:
        """Tokens whose keys and values are kept."""
        return tokens_in(self._state)

    async def respond(self, sampling: Sampling, address: Address) -> Completion:
        """Sample the next response."""
        prompt = self._advance()
        if not self._fits(sampling):
            return Completion("", tuple(prompt), (), (), "context")
        appended = len(prompt) + int(self._last_is_new)
        self._policy.meter["fresh"] += (
            appended if self._policy.samples == "trajectory" else len(self._ids) - self.encoded
        )
        if self._state is not None and self.encoded == len(self._ids):  # a fork that goes on where nothing was said
            self._state = [layer[:, :, :-1] for layer in self._state]
        draws = uniforms(seed_of(*address), sampling.max_tokens)
        stops = self._policy.renderer.stops(sampling.stop)
        job = Job(self._state, self._ids[self.encoded :], sampling, stops, draws)
        await self._policy.lockstep.request(sampling.phase, address, job)
        self._last_is_new = True
        self._state = job.state if self._policy.keep_cache else None
        return self._accept(prompt, job.ids, job.logprobs, job.stops)

    def fork(self, turns: int) -> LocalConversation:
        """The dialog after ``turns`` responses; shares the encoded prefix (no copy, no re-encoding)."""
        twin = super().fork(turns)
        twin._last_is_new = self._last_is_new and turns == len(self._ends) - 1  # nobody has encoded it yet
        if self._state is not None and turns:
            twin._state = [layer[:, :, : min(len(twin._ids), self.encoded)] for layer in self._state]
        return twin

    def close(self) -> None:
        """Forget the caches."""
        self._state = None

    def _rendered_anew(self, ids: list[int]) -> None:
        """Cut the caches back to what ``ids`` begins with; the last token is always encoded anew."""
        same = 0
        limit = min(self.encoded, len(ids) - 1)
        while same < limit and self._ids[same] == ids[same]:
            same += 1
        if self._state is not None:
            self._state = [layer[:, :, :same] for layer in self._state] if same else None


class Decoder:
    """Samples one batch of responses: one padded forward pass over the pending tokens, then token by token."""

    def __init__(self, model: Any, jobs: list[Job], end_id: int, meter: defaultdict[str, float]) -> None:
        self.model, self.end_id, self.meter = model, end_id, meter
        self.jobs = jobs
        self.live = list(range(len(jobs)))  # batch row -> job
        prefixes = [job.state for job in jobs]
        pending = max(len(job.pending) for job in jobs)
        budget = max(job.sampling.max_tokens for job in jobs)
        self.cache = BatchCache(prefixes, pending + budget, model)
        self.positions = torch.tensor([tokens_in(job.state) for job in jobs], device=model.device)

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
            ones = torch.ones(len(self.live), 1, dtype=torch.bool, device=tokens.device)
            logits_B_V = self._forward(tokens[:, None], ones)

    def _padded_pending(self) -> tuple[torch.Tensor, torch.Tensor]:
        width = max(len(job.pending) for job in self.jobs)
        ids = torch.full((len(self.jobs), width), self.end_id)
        valid = torch.zeros(len(self.jobs), width, dtype=torch.bool)
        for row, job in enumerate(self.jobs):
            ids[row, width - len(job.pending) :] = torch.tensor(job.pending)
            valid[row, width - len(job.pending) :] = True
            self.meter["encoded"] += len(job.pending)
        return ids.to(self.model.device), valid.to(self.model.device)

    def _forward(self, ids_B_C: torch.Tensor, valid_B_C: torch.Tensor) -> torch.Tensor:
        """Logits after the last column, float64, shape (B, V)."""
        mask = self.cache.begin(valid_B_C)
        steps_B_C = valid_B_C.long().cumsum(1)
        positions = (self.positions[:, None] + steps_B_C - 1).clamp(min=0)
        self.positions = self.positions + steps_B_C[:, -1]
        out = self.model(
            input_ids=ids_B_C,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        self.meter["forwards"] += 1
        logits_B_V: torch.Tensor = out.logits[:, -1].double()
        return logits_B_V

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
