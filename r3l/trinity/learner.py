"""The model that Trinity trains on a machine without GPUs: the local engine's sampler, gradients and checkpoints.

It does what the Tinker protocol asks for (r3l.trinity.server) in a single thread, with the numbers of the local engine:
the same draws at the same address, the same log-probabilities, AdamW and clipping.
"""

from __future__ import annotations

import copy
from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from r3l.chat.renderer import ChatRenderer
from r3l.config import Run, base_checkpoint_of, build_method
from r3l.core.batching import packed
from r3l.core.policy import Sampling
from r3l.local import checkpoint
from r3l.local.model import lora
from r3l.local.model.forward import DialogCache
from r3l.local.sampling.decoding import GenerationRequest, ReferenceDecoder, tokens_in
from r3l.local.session import load_network
from r3l.local.training.trainer import Trainer

KEPT = 512  # dialogs whose caches are kept: more than a step plays at once; our choice


@dataclass(frozen=True)
class Sample:
    """A response to sample: its seed is that of its address (r3l.core.seeds.seed_of)."""

    ids: list[int]
    max_tokens: int
    temperature: float
    seed: int


@dataclass(frozen=True)
class Datum:
    """Tokens of one row and the weight of each one's log-probability, both shape (T,)."""

    ids: np.ndarray
    weights: np.ndarray


class Learner:
    """Resumes from the newest checkpoint in ``run_dir``. ``sampler`` lags behind ``trainer.model`` until ``sync``."""

    def __init__(self, run: Run, run_dir: Path) -> None:
        torch.set_num_threads(run.threads)
        torch.use_deterministic_algorithms(True)
        self.run, self.folder = run, run_dir / "checkpoints"
        start = checkpoint.last_good(self.folder)
        state = checkpoint.read_state(start, run.fingerprint()) if start else None
        base = base_checkpoint_of(run)
        model, self.tokenizer = load_network(run, str(start) if start else base, "transformers")
        self._renderer = ChatRenderer(self.tokenizer)
        sampler = copy.deepcopy(model)
        reference = model if run.lora.rank else load_network(run, base, "transformers")[0].eval()
        self.trainer = Trainer(model, build_method(run), run.train, reference, run.sampling.temperature, sampler)
        if start and state:
            checkpoint.load_trainer(start, self.trainer, state["step"])
        self._caches = _Caches()

    @property
    def steps_done(self) -> int:
        return self.trainer.steps_done

    @torch.inference_mode()
    def sample(self, samples: Sequence[Sample]) -> list[tuple[list[int], list[float]]]:
        """Tokens and log-probs of responses, sampled in one batch with the weights of the last ``sync``."""
        requests = []
        for sample in samples:
            state = self._caches.longest(sample.ids)
            sampling = Sampling(sample.temperature, sample.max_tokens)
            requests.append(
                GenerationRequest(state, sample.ids[tokens_in(state) :], sampling, self._renderer.end_ids, sample.seed)
            )
        self.trainer.sampler.eval()
        ReferenceDecoder(self.trainer.sampler, requests, self._renderer.end_id, defaultdict(float)).run()
        for sample, request in zip(samples, requests, strict=True):
            self._caches.keep([*sample.ids, *request.ids[:-1]], request.state)
        return [(request.ids, request.logprobs) for request in requests]

    def logprobs(self, ids: Sequence[int], of_base: bool) -> list[float]:
        """Log-probability of each token given those before it, 0 for the first; by the sampler or the base model."""
        model = self.trainer.reference if of_base else self.trainer.sampler
        ids_1_T = torch.tensor([ids])
        with torch.no_grad(), lora.without_adapter(model) if of_base else nullcontext():
            return list(self.trainer.token_logprobs(model, ids_1_T, torch.ones_like(ids_1_T))[0].tolist())

    def forward(self, data: Sequence[Datum], backward: bool) -> list[np.ndarray]:
        """Log-probabilities of tokens with a weight, 0 elsewhere, shape (T,) each.

        ``backward`` adds the gradient of -sum(weight x log p) to what has been accumulated since the last step.
        """
        logprobs: list[np.ndarray] = [np.zeros(len(d.ids), dtype=np.float32) for d in data]
        weighing = [k for k, d in enumerate(data) if d.weights.any()]
        self.trainer.model.train()
        lengths = [len(data[k].ids) for k in weighing]
        for part in packed(lengths, self.run.train.tokens_per_microbatch):
            indices = [weighing[k] for k in part]
            ids_B_T, weights_B_T = _padded([data[k] for k in indices])
            with torch.set_grad_enabled(backward):
                logprobs_B_T = self.trainer.token_logprobs(self.trainer.model, ids_B_T, weights_B_T != 0)
            if backward:
                torch.autograd.backward(-(weights_B_T * logprobs_B_T).sum())
            for row, k in enumerate(indices):
                logprobs[k] = logprobs_B_T[row, : len(data[k].ids)].detach().numpy()
        return logprobs

    def step(self, lr: float) -> float:
        """An update with the accumulated gradient; its norm. Without any gradient the model stays as it is."""
        parameters = list(self.trainer.model.parameters())
        norm = self.trainer.optimizer_step(lr) if any(p.grad is not None for p in parameters) else 0.0
        self.trainer.optimizer.zero_grad()
        self.trainer.steps_done += 1
        return norm

    def sync(self) -> None:
        self.trainer.sync()
        self._caches = _Caches()

    def save(self) -> Path:
        """Write a checkpoint, as the local engine does."""
        return checkpoint.save(self.folder, self.trainer, self.tokenizer, self.run.fingerprint(), {})


class _Caches:
    """KV caches of recent dialogs, found by their tokens: the next turn of a dialog begins with them."""

    def __init__(self) -> None:
        self._states: OrderedDict[bytes, DialogCache] = OrderedDict()

    def longest(self, ids: Sequence[int]) -> DialogCache | None:
        """The caches of the longest known beginning of ``ids``; at least one token is left to encode."""
        wanted = _key(ids[:-1])
        known = max((key for key in self._states if wanted.startswith(key)), key=len, default=None)
        return None if known is None else self._states[known]

    def keep(self, ids: Sequence[int], state: DialogCache | None) -> None:
        """Remember the caches of ``ids``, and forget the oldest."""
        if state is not None:
            self._states[_key(ids)] = state
        while len(self._states) > KEPT:
            self._states.popitem(last=False)


def _key(ids: Sequence[int]) -> bytes:
    return np.asarray(ids, dtype=np.int32).tobytes()  # of fixed width, so a prefix of bytes is one of tokens


def _padded(data: Sequence[Datum]) -> tuple[torch.Tensor, torch.Tensor]:
    width = max(len(d.ids) for d in data)
    ids_B_T = torch.zeros(len(data), width, dtype=torch.int64)
    weights_B_T = torch.zeros(len(data), width)
    for row, d in enumerate(data):
        ids_B_T[row, : len(d.ids)] = torch.from_numpy(d.ids)
        weights_B_T[row, : len(d.ids)] = torch.from_numpy(d.weights)
    return ids_B_T, weights_B_T
