"""Replies from a model on this machine, by the sampler that training uses: a draw depends on its address alone."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from r3l.core.benchmark import Reply
from r3l.core.environment import Message
from r3l.core.errors import ConfigError
from r3l.core.policy import Completion, Sampling
from r3l.core.seeds import Address
from r3l.local.checkpoint import load_model
from r3l.local.policy import LocalPolicy
from r3l.local.precision import cast_parameters, compute_dtype, device_of


class LocalModel:
    """``model``: a stored model's name, a folder in Hugging Face layout, or a hub id. ``batch`` dialogs go together."""

    threads = 1

    def __init__(self, model: str, temperature: float, max_tokens: int, batch: int = 16) -> None:
        device = device_of()
        network, tokenizer = load_model(model, device)
        dtype = compute_dtype("bfloat16", device)
        cast_parameters(network, dtype)
        context = int(network.config.max_position_embeddings)
        if max_tokens >= context:
            raise ConfigError(
                f"--max-tokens is {max_tokens}, but {model} has room for {context} with the prompt; lower it"
            )
        self.name, self.batch = model.rstrip("/").rpartition("/")[2], batch
        self.settings: Mapping[str, Any] = {"temperature": temperature, "max_tokens": max_tokens}
        if dtype != torch.float32:
            self.settings = {**self.settings, "dtype": str(dtype)}
        self._sampling = Sampling(temperature, max_tokens)
        # `turn`: the template renders every dialog whole, as a server does; nothing here is trained on.
        self._policy = LocalPolicy(network, tokenizer, context, samples="turn")

    def respond(self, dialogs: Sequence[Sequence[Message]], addresses: Sequence[Address]) -> list[Reply]:
        """One reply each, sampled together."""
        addressed = list(zip(dialogs, addresses, strict=True))
        completions = asyncio.run(self._policy.barrier.gather(self._one, addressed))
        return [Reply(c.text, c.finish_reason, len(c.response_ids)) for c in completions]

    async def _one(self, addressed: tuple[Sequence[Message], Address]) -> Completion:
        dialog, address = addressed
        conversation = self._policy.open()
        for message in dialog:
            conversation.add(message)
        completion = await conversation.respond(self._sampling, address)
        conversation.close()
        return completion
