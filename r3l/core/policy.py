"""Policy: the model as a method sees it. Implementations: the local engine's (torch, vLLM) and Trinity's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, Protocol

from r3l.core.environment import Stop
from r3l.core.seeds import Address
from r3l.core.text import Message

Samples = Literal["trajectory", "turn"]  # what one training sample is: a whole dialog, or one response in its context


class Phase(StrEnum):
    """What a response is for, in the order in which a step's batches are served (r3l.processes.barrier)."""

    ROLLOUT = "rollout"
    FEEDBACK = "feedback"  # reflections and critiques
    RETRY = "retry"


class FinishReason(StrEnum):
    """Why the sampling of one response ended (OpenAI's ``finish_reason``)."""

    END = "end"  # the end-of-turn token was sampled
    LINE = "line"  # a line break was, see Sampling
    LENGTH = "length"  # max_tokens reached
    CONTEXT = "context"  # the dialog no longer fits the model, so nothing was sampled


@dataclass(frozen=True)
class Sampling:
    """How to sample. ``max_tokens`` counts the tokens of one response, the end-of-turn token included.

    ``stop``: with ``line`` a token that holds a line break ends the sampling too, and the next ``respond`` continues
    the response where no message has been added.
    """

    temperature: float = 1.0
    max_tokens: int = 512
    phase: Phase = Phase.ROLLOUT
    stop: Stop = "end"


@dataclass(frozen=True)
class Usage:
    """Tokens of one response as a server counts them: ``prompt`` that it read (the whole dialog), ``response``."""

    prompt: int
    response: int


@dataclass(frozen=True)
class Completion:
    """One sampled response. ``prompt_ids``: tokens appended since the previous response of this dialog.

    Without ids where a server keeps its tokens to itself; ``usage`` is then what it says of their number.
    """

    text: str
    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: FinishReason
    usage: Usage | None = None

    @property
    def tokens(self) -> Usage:
        """How many were read for it and sampled; of a local model those that were not known before."""
        return self.usage or Usage(len(self.prompt_ids), len(self.response_ids))


class Conversation(Protocol):
    """An append-only dialog held by the policy."""

    def add(self, message: Message) -> None:
        """Append a system or user message; it is encoded with the next response."""
        ...

    async def respond(self, sampling: Sampling, address: Address) -> Completion:
        """Sample the next assistant message; every random draw is seeded by ``address``."""
        ...

    def append_completion(self, completion: Completion) -> tuple[int, ...]:
        """Append a response that another dialog sampled; the prompt ids that it has in this one."""
        ...

    def append_text(self, text: str) -> Completion:
        """Append a response that nobody sampled (a teacher's text); its log-probs are 0."""
        ...

    def fork(self, turns: int) -> Conversation:
        """The dialog as it stood after ``turns`` responses, sharing what is already encoded."""
        ...

    def afresh(self) -> Conversation:
        """An empty dialog in place of this one; what both begin with need not be encoded again."""
        ...

    def close(self) -> None: ...


class JudgePrompts(StrEnum):
    """What a judge reads."""

    INSTRUCTIONS = "instructions"  # whole instructions and a log of the episode, whatever the run's prompts are
    AS_POLICY = "as_policy"  # what the policy would read, for a judge that was taught the same prompts


class Judge(Protocol):
    """A model that is not trained and writes feedback on episodes."""

    prompts: JudgePrompts

    async def write(self, messages: Sequence[Message], address: Address) -> Completion:
        """Its response to a dialog; draws are seeded by ``address`` as far as its server can."""
        ...


class Policy(Protocol):
    """Opens conversations."""

    def open(self) -> Conversation: ...
