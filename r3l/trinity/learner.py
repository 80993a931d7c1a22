"""The model that Trinity trains on a machine without GPUs.

The Learner executes the operations of the Tinker protocol (r3l.trinity.server) in a single thread, with
sampler, gradients and checkpoints of the local engine. So it gives the local engine's numbers: the same
draws at the same seed address, the same log-probabilities, AdamW and clipping.
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
from r3l.core.batching import batches_by_length
from r3l.core.policy import Sampling
from r3l.local import checkpoint
from r3l.local.model import lora
from r3l.local.model.forward import DialogCache
from r3l.local.sampling.decoding import GenerationRequest, ReferenceDecoder, tokens_in
from r3l.local.session import load_network
from r3l.local.training.trainer import Trainer
from r3l.runs.run_dir import CHECKPOINTS

KEPT = 512  # dialogs whose caches are kept: more than a step samples at once; our choice


@dataclass(frozen=True)
class SampleRequest:
    """A request to sample one response to the prompt ``ids`` (token ids), of at most ``max_tokens``.

    ``seed``: seed of its random draws; callers take r3l.core.seeds:seed_of the response's seed address.
    """

    ids: list[int]
    max_tokens: int
    temperature: float
    seed: int


@dataclass(frozen=True)
class Datum:
    """One training row: token ids, and the weight of each token's log-prob; both of shape (T,)."""

    ids: np.ndarray
    weights: np.ndarray


class Learner:
    """The model of a run: it samples, trains and saves, on this machine's CPU, without Trinity.

    It begins from the newest checkpoint in ``run_dir``, else from the base checkpoint. ``trainer.model``
    trains; ``trainer.sampler`` samples, with older weights until :meth:`sync`. Sets torch's threads and
    deterministic mode for the process.
    """

    def __init__(self, run: Run, run_dir: Path) -> None:
        torch.set_num_threads(run.threads)
        torch.use_deterministic_algorithms(True)
        self.run = run
        self.folder = run_dir / CHECKPOINTS

        # Load the newest checkpoint, or begin from the base checkpoint.
        start = checkpoint.last_good(self.folder)
        state = checkpoint.read_state(start, run.fingerprint()) if start else None
        base = base_checkpoint_of(run)
        model, self.tokenizer = load_network(run, str(start) if start else base, "transformers")
        self._renderer = ChatRenderer(self.tokenizer)

        # Trainer and sampler may be steps apart, so each has its own weights. With LoRA the reference
        # model is the same network without its adapter.
        sampler = copy.deepcopy(model)
        reference = model if run.lora.rank else load_network(run, base, "transformers")[0].eval()
        temperature = run.sampling.temperature
        self.trainer = Trainer(model, build_method(run), run.train, reference, temperature, sampler)
        if start and state:
            checkpoint.load_trainer(start, self.trainer, state["step"])
        self._caches = _Caches()

    @property
    def steps_done(self) -> int:
        """Number of updates so far, those before a resume included."""
        return self.trainer.steps_done

    @torch.inference_mode()
    def sample(self, samples: Sequence[SampleRequest]) -> list[tuple[list[int], list[float]]]:
        """Sample a response to each request, in one batch, with the weights of the last :meth:`sync`.

        Returns (token ids, their log-probs in nats) in the order of ``samples``. Key-value caches of recent
        dialogs are kept, so that a next turn encodes only its new tokens.
        """
        # Only the end of each prompt is encoded: the rest is in the caches of the dialog's last turn.
        requests = []
        for sample in samples:
            state = self._caches.longest(sample.ids)
            sampling = Sampling(sample.temperature, sample.max_tokens)
            pending = sample.ids[tokens_in(state) :]
            requests.append(GenerationRequest(state, pending, sampling, self._renderer.end_ids, sample.seed))
        self.trainer.sampler.eval()
        ReferenceDecoder(self.trainer.sampler, requests, self._renderer.end_id, defaultdict(float)).run()
        for sample, request in zip(samples, requests, strict=True):
            # The last sampled token is not encoded (see GenerationRequest).
            self._caches.keep([*sample.ids, *request.ids[:-1]], request.state)
        return [(request.ids, request.logprobs) for request in requests]

    def logprobs(self, ids: Sequence[int], of_base: bool) -> list[float]:
        """Log-prob (nats, at the sampling temperature) of each token of ``ids`` given those before it.

        The first has 0. They are the base checkpoint's if ``of_base``, else the sampling model's.
        """
        model = self.trainer.reference if of_base else self.trainer.sampler
        ids_1_T = torch.tensor([ids])
        with torch.no_grad(), lora.without_adapter(model) if of_base else nullcontext():
            return list(self.trainer.token_logprobs(model, ids_1_T, torch.ones_like(ids_1_T))[0].tolist())

    def forward(self, data: Sequence[Datum], backward: bool) -> list[np.ndarray]:
        """Log-probs under the trained model of tokens with a weight, 0 elsewhere; shape (T,) for each row.

        ``backward``: also add the gradient of -sum(weight x log p) over all rows to the gradient that is
        accumulated since the last :meth:`step`.
        """
        # Rows without any weight are the padding of the step (r3l.trinity.experience); they need no pass.
        logprobs: list[np.ndarray] = [np.zeros(len(d.ids), dtype=np.float32) for d in data]
        weighing = [k for k, d in enumerate(data) if d.weights.any()]
        self.trainer.model.train()
        lengths = [len(data[k].ids) for k in weighing]
        for part in batches_by_length(lengths, self.run.train.tokens_per_microbatch):
            indices = [weighing[k] for k in part]
            width = max(len(data[k].ids) for k in indices)
            ids_B_T = torch.zeros(len(indices), width, dtype=torch.int64)
            weights_B_T = torch.zeros(len(indices), width)
            for row, k in enumerate(indices):
                ids_B_T[row, : len(data[k].ids)] = torch.from_numpy(data[k].ids)
                weights_B_T[row, : len(data[k].ids)] = torch.from_numpy(data[k].weights)
            with torch.set_grad_enabled(backward):
                logprobs_B_T = self.trainer.token_logprobs(self.trainer.model, ids_B_T, weights_B_T != 0)
            if backward:
                torch.autograd.backward(-(weights_B_T * logprobs_B_T).sum())
            for row, k in enumerate(indices):
                logprobs[k] = logprobs_B_T[row, : len(data[k].ids)].detach().numpy()
        return logprobs

    def step(self, lr: float) -> float:
        """Update the weights with the accumulated gradient and clear it; returns its norm before clipping.

        ``lr``: learning rate. Without a gradient the weights stay and the norm is 0; the step counts anyway.
        Raises NonFiniteError for a norm or new weight that is not finite.
        """
        parameters = list(self.trainer.model.parameters())
        norm = self.trainer.optimizer_step(lr) if any(p.grad is not None for p in parameters) else 0.0
        self.trainer.optimizer.zero_grad()
        self.trainer.steps_done += 1
        return norm

    def sync(self) -> None:
        """Copy the trained weights to the model that samples; drops the caches of the old weights."""
        self.trainer.sync()
        self._caches = _Caches()

    def save(self) -> Path:
        """Write a checkpoint of the present step in the local engine's format; returns its folder.

        Errors as in r3l.local.checkpoint:save.
        """
        return checkpoint.save(self.folder, self.trainer, self.tokenizer, self.run.fingerprint(), {})


class _Caches:
    """KV caches of recent dialogs, indexed by tokens.

    The protocol has no dialogs: each request has all tokens again. The next turn of a dialog is
    recognised by its prefix.
    """

    def __init__(self) -> None:
        self._states: OrderedDict[bytes, DialogCache] = OrderedDict()

    def longest(self, ids: Sequence[int]) -> DialogCache | None:
        """Caches of the longest known prefix of ``ids``; leaves at least one token to encode."""
        wanted = _key(ids[:-1])
        known = max((key for key in self._states if wanted.startswith(key)), key=len, default=None)
        return None if known is None else self._states[known]

    def keep(self, ids: Sequence[int], state: DialogCache | None) -> None:
        """Keep the caches of ``ids``; drop the oldest ones beyond KEPT."""
        if state is not None:
            self._states[_key(ids)] = state
        while len(self._states) > KEPT:
            self._states.popitem(last=False)


def _key(ids: Sequence[int]) -> bytes:
    """Bytes of fixed width per token, so that a prefix of the bytes is a prefix of the tokens."""
    return np.asarray(ids, dtype=np.int32).tobytes()
