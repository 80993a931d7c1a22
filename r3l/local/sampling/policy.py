"""Local policy: batched sampling over many live dialogs with one model.

A dialog's cache is kept between turns and shared by its forks, so a token is encoded once. Each response
draws from its own Philox stream, seeded by (run, step, task, member, turn), so a sample does not depend on
the rest of its batch (up to floating-point rounding, which ``Barrier`` makes reproducible too).
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from os.path import commonprefix  # works on any sequences
from typing import Any

import torch

from r3l.chat.renderer import ChatRenderer
from r3l.chat.token_dialog import TokenDialog
from r3l.core.policy import Completion, FinishReason, Samples, Sampling
from r3l.core.seeds import Address, seed_of
from r3l.local.cpu import return_freed_memory
from r3l.local.kernels import cpu_kernels
from r3l.local.memory import SAMPLING_REMEDY, out_of_memory_explained
from r3l.local.model.forward import DialogCache, Pass, pass_of
from r3l.local.sampling.cuda_graphs import GraphDecoder, GraphStorage
from r3l.local.sampling.decoding import Decoder, GenerationRequest, ReferenceDecoder, RequestQueue, tokens_in
from r3l.local.sampling.packed_decoding import PackedDecoder, Storage
from r3l.local.sampling.prompt_lookup import PromptLookup
from r3l.processes.barrier import Barrier
from r3l.processes.progress import clock

SILENCE = 30.0  # seconds between two lines of progress; our choice
LARGE = 100_000_000  # parameters from which freed caches go back to the system, and tokens are drafted; our choice


class LocalPolicy:
    """Policy that samples with ``model``, a causal LM in this process, in batches over all live dialogs.

    ``max_context``: most tokens of a dialog. ``samples``: ``trajectory``: a dialog only ever appends tokens;
    ``turn``: the chat template renders it again at every turn (some templates drop earlier thoughts), and
    only tokens from the first difference on are encoded. ``use_cache=False``: no key-value cache is kept
    between turns. ``tokens_per_batch``: most tokens of a batch, padding included (a longer dialog is a batch
    by itself); None: no limit. ``forward_pass``: the pass that decodes; transformers' if the packed one
    cannot compute the model. ``between_tokens`` is called after every pass; what it raises ends sampling.
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
        forward_pass: Pass = "packed",
    ) -> None:
        self.model = model
        self.renderer = ChatRenderer(tokenizer)
        self.max_context = max_context
        self.samples = samples
        self.use_cache = use_cache
        self.tokens_per_batch = tokens_per_batch
        self.forward_pass = pass_of(model, forward_pass)
        # Decoders of the packed pass: CUDA graphs on a GPU, on a CPU our kernels, else torch's operations.
        self._packed_decoder: type[PackedDecoder] = PackedDecoder
        self._storage = Storage()
        on_gpu = model.device.type == "cuda"
        if on_gpu:
            self._packed_decoder = GraphDecoder
            self._storage = GraphStorage()
        elif kernels := cpu_kernels(model, self.forward_pass):
            self._packed_decoder = kernels.KernelDecoder
        large_on_cpu = not on_gpu and sum(p.numel() for p in model.parameters()) >= LARGE
        self._returns_memory = large_on_cpu
        # A pass of a large model takes as long as reading its weights; of a small one drafts cost what they save.
        self._lookup = PromptLookup() if large_on_cpu else None
        self.barrier = Barrier(self._serve)
        self.between_tokens: Callable[[], None] = lambda: None  # may raise, to end what is being sampled
        self.counts: defaultdict[str, float] = defaultdict(float)

    def open(self) -> LocalConversation:
        """A new, empty dialog."""
        return LocalConversation(self)

    def take_counts(self) -> dict[str, float]:
        """Return the counts since the last call, and reset them.

        ``encoded``: prompt tokens that the model read, those of earlier turns again if nothing was cached;
        ``forwards``: forward passes; ``seconds/PHASE``: of sampling.
        """
        counts = dict(self.counts)
        self.counts.clear()
        return counts

    def begin(self) -> None:
        """Called before the rollouts of a step or evaluation, to forget earlier ones."""
        if self._lookup:
            self._lookup.forget()

    def release(self) -> None:
        """Free GPU memory that only sampling needs, unless there is enough; called before training."""
        self._storage.release()

    def sync_weights(self) -> dict[str, float]:
        """Sample with the present weights of ``model`` from now on; returns metrics of the transfer.

        Nothing to do here (and {}): sampling reads the model's own weights in memory.
        """
        return {}

    def close(self) -> None:
        """Shut the sampler down. Nothing to do here."""

    def _serve(self, requests: list[GenerationRequest]) -> list[GenerationRequest]:
        """Sample the requests of a barrier; the same objects, filled."""
        began = time.perf_counter()
        self.sample(requests)
        if self._returns_memory:  # otherwise the process would grow from batch to batch (results/notebook)
            return_freed_memory()
        self.counts[f"seconds/{requests[0].sampling.phase}"] += time.perf_counter() - began
        return requests

    @torch.inference_mode()
    def sample(self, requests: list[GenerationRequest]) -> None:
        """Sample a response for each of ``requests``: sets their ``ids``, ``logprobs`` and ``state``.

        Batches have at most ``tokens_per_batch`` tokens. Raises EngineError if GPU memory does not suffice.
        """
        self.model.eval()
        progress = SamplingProgress(requests)

        def after_token(live: int) -> None:
            progress(live)
            self.between_tokens()

        # Batches by length, within the budget. A decoder may take further requests from the queue while it
        # runs, in the rows of responses that have ended; what it leaves is the next batch.
        longest = max(request.columns() for request in requests)
        queue = RequestQueue(requests, self.tokens_per_batch or len(requests) * longest)
        while queue:
            batch = queue.take_batch()
            with out_of_memory_explained(f"in sampling {len(batch)} responses together", SAMPLING_REMEDY):
                arguments = (self.model, batch, self.renderer.end_id, self.counts)
                decoder: Decoder
                if self.forward_pass == "transformers":
                    decoder = ReferenceDecoder(*arguments)
                else:
                    decoder = self._packed_decoder(self._storage, *arguments, self._lookup)
                decoder.run(after_token, queue)


class SamplingProgress:
    """Prints a progress line to stderr every SILENCE seconds (30) while ``requests`` are sampled.

    Called after every pass. On a CPU sampling a batch can take many minutes.
    """

    def __init__(self, requests: Sequence[GenerationRequest]) -> None:
        self.requests = requests
        self.steps = 0  # passes
        self.rows = 0  # rows of all passes
        self.began = time.monotonic()
        self.said = self.began  # when the last line was printed

    def __call__(self, live: int) -> None:
        """Note that ``live`` responses have got tokens in one more pass, and print a line if one is due."""
        now = time.monotonic()
        if not self.steps:  # the first token took as long as all prompts, which no later one does
            self.began = now
        self.steps += 1
        self.rows += live
        if now - self.said > SILENCE and self.steps > 1:
            self.said = now
            print(f"  {self.line(live, now - self.began)}", file=sys.stderr, flush=True)

    def line(self, live: int, seconds: float) -> str:
        """The progress line, ``seconds`` after the first token, while ``live`` responses are being sampled.

        It has an upper bound of the time left, as if every response became as long as it may and each queued
        one took the row of a finished one. Once a response has ended, it also has the likely time left, as if
        responses went on to end at the same rate per token. Raises ZeroDivisionError before the second pass,
        when the pace is unknown.
        """
        tokens = sum(len(request.ids) for request in self.requests)
        unfinished = [request for request in self.requests if not request.finished()]
        may_come = [request.sampling.max_tokens - len(request.ids) for request in unfinished]
        steps = max(*may_come, sum(may_come) / live) if may_come else 0
        ended = len(self.requests) - len(may_come)
        phase = self.requests[0].sampling.phase
        turn = max(request.turn for request in self.requests)
        # Seconds for a token of each response: a pass, which with right drafts samples several.
        pace = seconds / (self.steps - 1) * self.rows / tokens
        done = f"{ended} of {len(self.requests)} responses ended, {tokens:,} tokens"
        left = f"{clock(pace * steps)} left of it at most"
        if ended and may_come:
            # The longest of n responses with a constant rate of ending takes 1 + 1/2 + ... + 1/n mean ones.
            longest = sum(1 / k for k in range(1, live + 1))
            likely = min(steps, tokens / ended * max(longest, len(may_come) / live))
            left = f"about {clock(pace * likely)} left of it, {clock(pace * steps)} at most"
        return f"{phase}, turn {turn}: {done}, {left}"


class LocalConversation(TokenDialog):
    """Dialog of a LocalPolicy; it keeps the model's keys and values of its encoded tokens between turns."""

    _policy: LocalPolicy

    def __init__(self, policy: LocalPolicy) -> None:
        super().__init__(policy)
        self._state: DialogCache | None = None  # caches of the first `encoded` tokens
        self._turns_before = 0  # turns of the dialogs that this one replaces

    @property
    def encoded(self) -> int:
        """Number of tokens, from the beginning of the dialog, whose keys and values are cached."""
        return tokens_in(self._state)

    async def respond(self, sampling: Sampling, address: Address) -> Completion:
        """Sample the next response, in one batch with all other live dialogs, and append it to the dialog.

        ``address`` seeds its draws. If the dialog so far and ``max_tokens`` exceed ``max_context``, it
        returns an empty response with ``FinishReason.CONTEXT`` and appends nothing.
        """
        prompt = self._advance()
        if not self._fits(sampling.max_tokens):
            return Completion("", tuple(prompt), (), (), FinishReason.CONTEXT)

        # The decoder needs a token to encode: a fork without a new message encodes its last one again.
        if self._state is not None and self.encoded == len(self._ids):
            self._state = self._state[..., :-1, :]
        stops = self._policy.renderer.stops(sampling.stop)
        request = GenerationRequest(
            self._state,
            pending=self._ids[self.encoded :],
            sampling=sampling,
            stops=stops,
            seed=seed_of(*address),
            turn=self._turns_before + len(self._tokens_at),
        )

        # Wait until every other live dialog waits too, so that the batch does not depend on timing.
        await self._policy.barrier.request(sampling.phase, address, request)
        self._state = request.state if self._policy.use_cache else None
        return self._accept(prompt, request.ids, request.logprobs, request.stops)

    def fork(self, turns: int) -> LocalConversation:
        """A new dialog with the first ``turns`` responses of this one; it shares their key-value cache.

        The cache is not copied. Raises IndexError if there are fewer responses.
        """
        twin = super().fork(turns)
        if self._state is not None and turns:
            twin._state = self._state[..., : min(len(twin._ids), self.encoded), :]
        return twin

    def restarted(self) -> LocalConversation:
        """A new, empty dialog that takes over this one's KV cache, so that a common prefix is not read again.

        This dialog is left without a cache.
        """
        twin = super().restarted()
        twin._state = self._state
        self._state = None
        twin._turns_before = self._turns_before + len(self._tokens_at) - 1
        return twin

    def close(self) -> None:
        """Free the cached keys and values."""
        self._state = None

    def _before_rendering(self, ids: list[int]) -> None:
        """Cut the caches back to the tokens that ``ids`` shares; the last token is always encoded again."""
        if self._state is not None:
            same = len(commonprefix([self._ids[: self.encoded], ids[:-1]]))
            self._state = self._state[..., :same, :] if same else None
