"""Dialogs with Trinity's rollout model, token ids in and token ids out."""

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
    """Policy that samples from a Trinity model (see r3l.core.policy.Policy).

    A request carries the seed of its address. ``meter`` counts discarded tokens (``tokens/cut``).
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
        """Sample a response to ``ids`` with its log-probs, up to and including the first of ``stops``."""
        params = {"max_tokens": sampling.max_tokens, "temperature": sampling.temperature, "seed": seed}
        # Call the model's actor directly: ModelWrapper takes only text, which would be tokenised again.
        actor = self.model.model
        if self.model.config.engine_type == "tinker":
            response = await actor._generate_internal.remote(prompt={"prompt_token_ids": ids}, **params)
        else:
            request = types.SamplingParams(**params)
            adapter = await self.model.get_lora_request_async()
            response = await actor.sample.remote(
                types.ModelInput.from_ints(ids), 1, request, lora_request=adapter
            )
        (sequence,) = response.sequences
        # Trinity's samplers stop only at the end token, so what follows another stop (a line break) goes
        # here.
        tokens = list(sequence.tokens)
        end = next((k + 1 for k, token in enumerate(tokens) if token in stops), len(tokens))
        if end < len(tokens):
            self.meter["tokens/cut"] += len(tokens) - end
        return tokens[:end], list(sequence.logprobs)[:end]

    async def logprobs(self, ids: list[int], temperature: float, frozen: bool = False) -> list[float]:
        """Log-probability of every token of ``ids`` given its prefix; 0 for the first token.

        ``frozen``: under the base checkpoint, which is the model without its adapter (r3l.trinity.config).
        """
        if self.model.config.engine_type == "tinker":
            scored = await self.model.logprobs_async(ids, temperature=temperature)
        else:
            # ModelWrapper.logprobs_async would leave the adapter out.
            adapter = None if frozen else await self.model.get_lora_request_async()
            scored = await self.model.model.logprobs.remote(
                ids, lora_request=adapter, temperature=temperature
            )
        return [0.0, *scored.tolist()]


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
