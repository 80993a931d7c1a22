"""Policy: the model as methods see it; implemented for torch, vLLM, served models and Trinity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, Protocol

from r3l.core.environment import Stop
from r3l.core.seeds import Address
from r3l.core.text import Message

# One training sample: a complete dialog, or one response with its context.
Samples = Literal["trajectory", "turn"]


class Phase(StrEnum):
    """The purpose of a response; a training step samples them in this order (r3l.processes.barrier)."""

    ROLLOUT = "rollout"
    FEEDBACK = "feedback"  # reflections and critiques
    RETRY = "retry"


class FinishReason(StrEnum):
    """Why the sampling of one response ended, as OpenAI's ``finish_reason``."""

    END = "end"  # the end-of-turn token was sampled
    LINE = "line"  # a line break was sampled (``stop: line``)
    LENGTH = "length"  # ``max_tokens`` were sampled
    CONTEXT = "context"  # the dialog no longer fits the model, so nothing was sampled


@dataclass(frozen=True)
class Sampling:
    """Sampling parameters of one response.

    ``max_tokens`` includes the end-of-turn token. ``phase``: the response's purpose. Under ``stop: line`` a
    token that holds a line break ends the sampling too; the next ``Conversation.respond`` then continues the
    response, unless a message has been added.
    """

    temperature: float = 1.0
    max_tokens: int = 512
    phase: Phase = Phase.ROLLOUT
    stop: Stop = "end"


@dataclass(frozen=True)
class Usage:
    """Token counts of one response: ``prompt`` tokens read for it, ``response`` tokens sampled."""

    prompt: int
    response: int


@dataclass(frozen=True)
class Completion:
    """One sampled response and its tokens.

    ``prompt_ids``: tokens appended since the previous response of this dialog. ``logprobs``: one per response
    token, in nats at the sampling temperature. A server that reveals no token ids leaves ids and log-probs
    empty; ``usage`` then holds its token counts, in which ``prompt`` is the complete dialog.
    """

    text: str
    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: FinishReason
    usage: Usage | None = None

    @property
    def tokens(self) -> Usage:
        """Token counts: the server's, or for a local model the lengths of prompt_ids and response_ids."""
        return self.usage or Usage(len(self.prompt_ids), len(self.response_ids))


class Conversation(Protocol):
    """An append-only dialog with the policy, which keeps its state (tokens, KV cache)."""

    def add(self, message: Message) -> None:
        """Append a system or user message; it is encoded with the next response."""
        ...

    async def respond(self, sampling: Sampling, address: Address) -> Completion:
        """Sample the next assistant message and append it; its draws are seeded by ``address``.

        If the dialog no longer fits the model, the message is empty, with ``FinishReason.CONTEXT``.
        """
        ...

    def append_completion(self, completion: Completion) -> tuple[int, ...]:
        """Append a response that another dialog sampled.

        Returns its prompt ids in this dialog: the tokens read since the previous response.
        """
        ...

    def append_text(self, text: str) -> Completion:
        """Append a given text (a critic's or a judge's) as a response, and return it; its log-probs are 0."""
        ...

    def fork(self, turns: int) -> Conversation:
        """A copy of the dialog after its first ``turns`` responses; IndexError if it has fewer.

        Tokens that are encoded already are not encoded again.
        """
        ...

    def restarted(self) -> Conversation:
        """An empty dialog that replaces this one; a common beginning of their tokens is not encoded again."""
        ...

    def close(self) -> None:
        """Release the dialog's state, such as its KV cache."""
        ...


class JudgePrompts(StrEnum):
    """Form of the prompts that a judge gets."""

    INSTRUCTIONS = "instructions"  # complete instructions and a log of the episode
    AS_POLICY = "as_policy"  # the policy's own prompts, for a judge trained on them


class Judge(Protocol):
    """A frozen model, other than the policy, that writes feedback on episodes.

    ``prompts``: form of its prompts (:class:`JudgePrompts`).
    """

    prompts: JudgePrompts

    async def write(self, messages: Sequence[Message], address: Address) -> Completion:
        """The judge's response to a dialog, seeded by the seed address ``address`` if its server allows."""
        ...


class Policy(Protocol):
    """The model: a source of conversations."""

    def open(self) -> Conversation:
        """A new, empty dialog."""
        ...
