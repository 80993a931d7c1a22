"""TrinityPolicy: dialogs whose responses Trinity's rollout model samples, token ids in and token ids out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Set
from typing import Any

from tinker import types
from trinity.common.models.model import ModelWrapper

from r3l.chat.renderer import ChatRenderer
from r3l.chat.token_dialog import TokenDialog
from r3l.core.policy import Completion, FinishReason, Samples, Sampling
from r3l.core.seeds import Address, seed_of

Sampled = tuple[list[int], list[float]]


class TrinityPolicy:
    """Opens dialogs with a Trinity model (see r3l.core.policy.Policy).

    A request carries the seed of its address. ``meter`` counts sampled tokens that are cut off (``tokens/cut``).
    """

    def __init__(self, model: ModelWrapper, tokenizer: Any, max_context: int, samples: Samples) -> None:
        self.model = model
        self.renderer = ChatRenderer(tokenizer)
        self.max_context = max_context
        self.samples = samples
        self.meter: defaultdict[str, float] = defaultdict(float)

    def open(self) -> TrinityConversation:
        return TrinityConversation(self)

    async def sample(self, ids: list[int], sampling: Sampling, stops: Set[int], seed: int) -> Sampled:
        """A response to ``ids`` and its log-probs, up to and including the first of ``stops``.

        Trinity's samplers stop at the end token only, so anything after a line break is cut off here.
        """
        params = types.SamplingParams(max_tokens=sampling.max_tokens, temperature=sampling.temperature, seed=seed)
        (sequence,) = (await self._request(ids, params)).sequences
        tokens = list(sequence.tokens)
        end = next((k + 1 for k, token in enumerate(tokens) if token in stops), len(tokens))
        if end < len(tokens):
            self.meter["tokens/cut"] += len(tokens) - end
        return tokens[:end], list(sequence.logprobs)[:end]

    async def _request(self, ids: list[int], params: types.SamplingParams) -> types.SampleResponse:
        """Ask the model's actor itself: ModelWrapper takes text only, which would be tokenised again."""
        actor = self.model.model
        if self.model.config.engine_type == "tinker":
            options = {"max_tokens": params.max_tokens, "temperature": params.temperature, "seed": params.seed}
            return await actor._generate_internal.remote(prompt={"prompt_token_ids": ids}, **options)
        return await actor.sample.remote(types.ModelInput.from_ints(ids), 1, params)

    async def logprobs(self, ids: list[int], temperature: float) -> list[float]:
        """Log-probability of every token of ``ids`` given those before it; 0 for the first."""
        return [0.0, *(await self.model.logprobs_async(ids, temperature=temperature)).tolist()]


class TrinityConversation(TokenDialog):
    """A dialog of Trinity's model (see r3l.core.policy.Conversation)."""

    _policy: TrinityPolicy

    async def respond(self, sampling: Sampling, address: Address) -> Completion:
        prompt = self._advance()
        if not self._fits(sampling):
            return Completion("", tuple(prompt), (), (), FinishReason.CONTEXT)
        stops = self._policy.renderer.stops(sampling.stop)
        ids, logprobs = await self._policy.sample(self._ids, sampling, stops, seed_of(*address))
        return self._accept(prompt, ids, logprobs, stops)
