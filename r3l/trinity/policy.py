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
    """Policy (r3l.core.policy) that samples from Trinity's rollout model, token ids in and out.

    Each request carries the seed of its seed address. ``max_context``: most tokens of a dialog; ``samples``:
    ``turn`` renders a dialog again at every turn. ``meter`` counts discarded tokens (``tokens/cut``).
    """

    def __init__(self, model: ModelWrapper, tokenizer: Any, max_context: int, samples: Samples) -> None:
        self.model = model
        self.renderer = ChatRenderer(tokenizer)
        self.max_context = max_context
        self.samples = samples
        self.meter: defaultdict[str, float] = defaultdict(float)

    def open(self) -> TrinityConversation:
        """A new, empty dialog."""
        return TrinityConversation(self)

    async def sample(self, ids: list[int], sampling: Sampling, stops: Set[int], seed: int) -> Sampled:
        """Sample a response to prompt ``ids``, up to the first stop token: (token ids, log-probs in nats).

        The stop token, one of the ids ``stops``, is included; sampled tokens after it are dropped and counted
        in ``meter``.
        """
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
        """Log-probability (nats) of every token of ``ids`` given those before it; 0 for the first token.

        Logits are divided by ``temperature``. ``frozen``: under the base checkpoint, that is the model
        without its LoRA adapter, instead of the present policy.
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
    """A dialog with Trinity's rollout model, kept as token ids (see r3l.core.policy.Conversation)."""

    _policy: TrinityPolicy

    async def respond(self, sampling: Sampling, address: Address) -> Completion:
        """Sample the next response, seeded by ``address``, and append it to the dialog.

        If the dialog so far and ``max_tokens`` exceed ``max_context``, it returns an empty response with
        ``FinishReason.CONTEXT`` and appends nothing.
        """
        prompt = self._advance()
        if not self._fits(sampling.max_tokens):
            return Completion("", tuple(prompt), (), (), FinishReason.CONTEXT)
        stops = self._policy.renderer.stops(sampling.stop)
        ids, logprobs = await self._policy.sample(self._ids, sampling, stops, seed_of(*address))
        return self._accept(prompt, ids, logprobs, stops)
