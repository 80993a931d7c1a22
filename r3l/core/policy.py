"""Policy: the model as a method sees it. Implementations: local torch, later HTTP servers and Trinity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from r3l.core.environment import Message, Stop
from r3l.core.seeds import Address

Samples = Literal["trajectory", "turn"]  # what one training sample is: a whole dialog, or one response in its context


PHASES = ("rollout", "feedback", "retry")


@dataclass(frozen=True)
class Sampling:
    """How to sample. ``max_tokens`` counts the tokens of one response, the end-of-turn token included.

    ``stop``: with ``line`` a token that holds a line break ends the sampling too, and the next ``respond`` continues
    the response where no message has been added. ``phase`` (index into PHASES; feedback: reflections and critiques)
    orders the batches of one step: see ``r3l.core.barrier``.
    """

    temperature: float = 1.0
    max_tokens: int = 512
    phase: int = 0
    stop: Stop = "end"


@dataclass(frozen=True)
class Completion:
    """One sampled response. ``prompt_ids``: tokens appended since the previous response of this dialog.

    ``stop_reason``: ``end`` (end-of-turn sampled), ``line`` (a line break, see Sampling), ``length`` (max_tokens
    reached) or ``context`` (the dialog no longer fits the model; then there are no response tokens).
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

    def adopt(self, completion: Completion) -> tuple[int, ...]:
        """Append a response that another dialog sampled; the prompt ids that it has in this one."""
        ...

    def write(self, text: str) -> Completion:
        """Append a response that nobody sampled (a teacher's text); its log-probs are 0."""
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
