"""Policy: the model as a method sees it. Implementations: local torch, later HTTP servers and Trinity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from r3l.core.environment import Message
from r3l.core.seeds import Address


@dataclass(frozen=True)
class Sampling:
    """How to sample. ``max_tokens`` counts the tokens of one response, the end-of-turn token included.

    ``phase`` orders the batches of one step (0 rollouts, 1 reflections, 2 retries): see ``r3l.core.lockstep``.
    """

    temperature: float = 1.0
    max_tokens: int = 512
    phase: int = 0


@dataclass(frozen=True)
class Completion:
    """One sampled response. ``prompt_ids``: tokens appended since the previous response of this dialog.

    ``stop_reason``: ``end`` (end-of-turn sampled), ``length`` (max_tokens reached) or ``context`` (the
    dialog no longer fits the model; then there are no response tokens).
    """

    text: str
    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    stop_reason: str


class Conversation(Protocol):
    """An append-only dialog held by the policy."""

    def add(self, message: Message) -> None:
        """Append a system or user message; it is encoded with the next response."""
        ...

    async def respond(self, sampling: Sampling, address: Address) -> Completion:
        """Sample the next assistant message; every random draw is seeded by ``address``."""
        ...

    def fork(self, turns: int) -> Conversation:
        """The dialog as it stood after ``turns`` responses, sharing what is already encoded."""
        ...

    def close(self) -> None:
        """Release what the policy keeps for this dialog."""
        ...


class Policy(Protocol):
    """Opens conversations."""

    def open(self) -> Conversation:
        """An empty dialog."""
        ...
