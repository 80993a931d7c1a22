"""Local policy: batched sampling over many live dialogs with one transformers model.

A dialog's cache is kept between turns and shared by its forks, so a token is encoded once. Each response's
randomness is one Philox stream addressed by (run, step, task, member, turn), so a sample does not depend on who
shares the batch (up to floating-point rounding, which ``Barrier`` makes reproducible too).
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from os.path import commonprefix  # of any sequences
from typing import Any

import torch

from r3l.chat.renderer import ChatRenderer
from r3l.chat.token_dialog import TokenDialog
from r3l.core.policy import Completion, FinishReason, Samples, Sampling
from r3l.core.seeds import Address, seed_of
from r3l.local.cpu import return_freed_memory
from r3l.local.memory import SAMPLING_REMEDY, out_of_memory_explained
from r3l.local.model.forward import DialogCache, Pass, has_machine_code, pass_of
from r3l.local.sampling.cuda_graphs import GraphDecoder, GraphStorage
from r3l.local.sampling.decoding import Decoder, GenerationRequest, ReferenceDecoder, Waiting, tokens_in
from r3l.local.sampling.packed_decoding import PackedDecoder, Storage
from r3l.processes.barrier import Barrier
from r3l.processes.progress import clock

SILENCE = 30.0  # seconds without a line; our choice
LARGE = 100_000_000  # parameters of a model whose freed caches go back to the system at once; our choice


class LocalPolicy:
    """Opens dialogs with ``model`` (a causal LM of transformers). ``max_context`` counts tokens of a dialog.

    ``samples``: ``trajectory`` dialogs only ever append tokens; ``turn`` dialogs are rendered by the chat template at
    every turn again, for templates that drop earlier thoughts, and encode what differs.
    ``use_cache=False`` encodes every dialog again at each turn.
    ``tokens_per_batch``, padding counted, are sampled together at most (a longer dialog goes alone); None: no limit.
    ``forward``: which forward pass decodes (r3l.local.model.forward); transformers' where the packed one cannot.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        max_context: int,
        *,
        samples: Samples = "trajectory",
        use_cache: bool = True,
        tokens_per_batch: int | None = None,
        forward: Pass = "packed",
    ) -> None:
        self.model = model
        self.renderer = ChatRenderer(tokenizer)
        self.max_context = max_context
        self.samples = samples
        self.use_cache = use_cache
        self.tokens_per_batch = tokens_per_batch
        self.forward = pass_of(model, forward)
        on_gpu = model.device.type == "cuda"
        self._packed_decoder, self._storage = (GraphDecoder, GraphStorage()) if on_gpu else (PackedDecoder, Storage())
        if self.forward == "packed" and has_machine_code(model):
            from r3l.local.kernels.cpu_kernel_decoder import (  # numba takes a third of a second
                KernelDecoder,
                load,
            )

            load()
            self._packed_decoder = KernelDecoder
        self._returns_memory = not on_gpu and sum(p.numel() for p in model.parameters()) >= LARGE
        self.barrier = Barrier(self._serve)
        self.between_tokens: Callable[[], None] = lambda: None  # may raise, to end what is being sampled
        self.counts: defaultdict[str, float] = defaultdict(float)

    def open(self) -> LocalConversation:
        return LocalConversation(self)

    def take_counts(self) -> dict[str, float]:
        """What sampling took since the last call: tokens ``appended`` to dialogs and prompt tokens ``encoded`` (more
        than appended where a dialog was encoded again), ``forwards`` (passes of the model), ``seconds/<phase>``."""
        counts = dict(self.counts)
        self.counts.clear()
        return counts

    def begin(self) -> None:
        """Before the rollouts of a step or a batch: what they sample depends on nothing that was sampled before."""

    def release(self) -> None:
        """After them: what memory of a GPU sampling alone needs goes to training."""
        self._storage.release()

    def sync_weights(self) -> dict[str, float]:
        """Sample with the present weights of ``model`` from now on; metrics. They are shared: nothing to do."""
        return {}

    def close(self) -> None:
        """End what samples."""

    def _serve(self, requests: list[GenerationRequest]) -> list[GenerationRequest]:
        began = time.perf_counter()
        self.sample(requests)
        if self._returns_memory:  # kept, it grew from batch to batch (results/notebook)
            return_freed_memory()
        self.counts[f"seconds/{requests[0].sampling.phase}"] += time.perf_counter() - began
        return requests

    @torch.inference_mode()
    def sample(self, requests: list[GenerationRequest]) -> None:
        """Fill the ids and log-probs of ``requests``."""
        self.model.eval()
        longest = max(request.columns() for request in requests)
        waiting = Waiting(requests, self.tokens_per_batch or len(requests) * longest)
        watch = self._watch(SamplingProgress(requests))
        while waiting:
            batch = waiting.batch()
            with out_of_memory_explained(f"in sampling {len(batch)} responses together", SAMPLING_REMEDY):
                self._decoder(batch).run(watch, waiting)

    def _watch(self, progress: SamplingProgress) -> Callable[[int], None]:
        def after_token(live: int) -> None:
            progress(live)
            self.between_tokens()

        return after_token

    def _decoder(self, requests: list[GenerationRequest]) -> Decoder:
        common = (self.model, requests, self.renderer.end_id, self.counts)
        if self.forward == "transformers":
            return ReferenceDecoder(*common)
        return self._packed_decoder(self._storage, *common)


class SamplingProgress:
    """A line on stderr every half a minute, while responses to one turn are sampled: on a CPU it can take many."""

    def __init__(self, requests: Sequence[GenerationRequest]) -> None:
        self.requests, self.steps = requests, 0
        self.began = self.said = time.monotonic()

    def __call__(self, live: int) -> None:
        """``live`` responses have got a token."""
        now = time.monotonic()
        if not self.steps:  # the first token took as long as all prompts, which no later one does
            self.began = now
        self.steps += 1
        if now - self.said > SILENCE and self.steps > 1:
            self.said = now
            print(f"  {self.line(live, now - self.began)}", file=sys.stderr, flush=True)

    def line(self, live: int, seconds: float) -> str:
        """So many ``seconds`` after the first token. At most so much is left: every response may be as long as it may
        be, and of those that wait one begins where another ends."""
        tokens = sum(len(request.ids) for request in self.requests)
        may_come = [
            request.sampling.max_tokens - len(request.ids) for request in self.requests if not request.finished()
        ]
        steps = max(*may_come, sum(may_come) / live) if may_come else 0
        ended = len(self.requests) - len(may_come)
        phase, turn = self.requests[0].sampling.phase, max(request.turn for request in self.requests)
        left = f"{clock(seconds / (self.steps - 1) * steps)} left of it at most"
        return f"{phase}, turn {turn}: {ended} of {len(self.requests)} responses ended, {tokens:,} tokens, {left}"


class LocalConversation(TokenDialog):
    """A dialog of the local policy, with the caches of what is encoded."""

    _policy: LocalPolicy

    def __init__(self, policy: LocalPolicy) -> None:
        super().__init__(policy)
        self._state: DialogCache | None = None  # caches of the first `encoded` tokens
        self._last_is_new = False  # the last response's final token was sampled here and is not encoded yet
        self._turns_before = 0  # of the dialogs in whose place it stands

    @property
    def encoded(self) -> int:
        """Tokens whose keys and values are kept."""
        return tokens_in(self._state)

    async def respond(self, sampling: Sampling, address: Address) -> Completion:
        prompt = self._advance()
        if not self._fits(sampling):
            return Completion("", tuple(prompt), (), (), FinishReason.CONTEXT)
        appended = len(prompt) + int(self._last_is_new)
        self._policy.counts["appended"] += len(self._ids) - self.encoded if self._rendered else appended
        if self._state is not None and self.encoded == len(self._ids):  # a fork that goes on without a new message
            self._state = self._state[..., :-1, :]
        stops = self._policy.renderer.stops(sampling.stop)
        pending, turn = self._ids[self.encoded :], self._turns_before + len(self._tokens_at)
        request = GenerationRequest(self._state, pending, sampling, stops, seed_of(*address), turn=turn)
        await self._policy.barrier.request(sampling.phase, address, request)
        self._last_is_new = True
        self._state = request.state if self._policy.use_cache else None
        return self._accept(prompt, request.ids, request.logprobs, request.stops)

    def fork(self, turns: int) -> LocalConversation:
        """The dialog after ``turns`` responses; shares the encoded prefix (no copy, no re-encoding)."""
        twin = super().fork(turns)
        twin._last_is_new = self._last_is_new and turns == len(self._tokens_at) - 1  # nobody has encoded it yet
        if self._state is not None and turns:
            twin._state = self._state[..., : min(len(twin._ids), self.encoded), :]
        return twin

    def afresh(self) -> LocalConversation:
        twin = super().afresh()
        twin._state, self._state = self._state, None
        twin._turns_before = self._turns_before + len(self._tokens_at) - 1
        return twin

    def close(self) -> None:
        self._state = None

    def _before_rendering(self, ids: list[int]) -> None:
        """Cut the caches back to what ``ids`` begins with; the last token is always encoded again."""
        if self._state is not None:
            same = len(commonprefix([self._ids[: self.encoded], ids[:-1]]))
            self._state = self._state[..., :same, :] if same else None
