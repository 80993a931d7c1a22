"""A judge at an endpoint: it writes feedback on episodes; nothing of it is trained."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from r3l.core.message import Message
from r3l.core.policy import Completion, JudgePrompts, Sampling
from r3l.core.seeds import Address
from r3l.endpoint.client import Endpoint
from r3l.endpoint.policy import MessagePolicy

_END_OF_THOUGHT = "</think>"


class EndpointJudge:
    """A judge (r3l.core.policy.Judge). No more requests are under way at once than the endpoint's ``concurrency``."""

    def __init__(self, endpoint: Endpoint, sampling: Sampling, prompts: JudgePrompts) -> None:
        self.prompts = prompts
        self._policy, self._sampling = MessagePolicy(endpoint), sampling
        self._slots = asyncio.Semaphore(endpoint.options.concurrency)

    async def write(self, messages: Sequence[Message], address: Address) -> Completion:
        """Its response, without the thoughts before it. Raises ServerError."""
        dialog = self._policy.open()
        for message in messages:
            if message.role == "assistant":
                dialog.append_text(message.content)
            else:
                dialog.add(message)
        async with self._slots:
            completion = await dialog.respond(self._sampling, address)
        return replace(completion, text=completion.text.rpartition(_END_OF_THOUGHT)[2].strip())

    def counts(self) -> dict[str, float]:
        """Requests, and repetitions by reason (r3l.runs.metrics)."""
        return {f"judge/{name}": number for name, number in self._policy.endpoint.counts.items()}
