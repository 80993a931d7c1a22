"""Fields of a server's answer that both protocols have: token counts, and how a response ended."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

import httpx2
from pydantic import BaseModel, ConfigDict, Field

from r3l.core.policy import FinishReason

# Finish reasons of many servers, in lower case: the model ended the response, or it reached its limit. With
# any other word, or none, the response may be incomplete, so it is never graded.
_ENDS = {
    "stop",
    "stop_sequence",
    "eos",
    "eos_token",
    "end",
    "end_turn",
    "endoftext",
    "complete",
    "completed",
    "finish",
}
_LENGTHS = {
    *("length", "max_length", "model_length", "max_tokens", "max_new_tokens", "max_output_tokens"),
    *("max_completion_tokens", "token_limit", "model_context_window_exceeded"),
}
_ACCIDENTS = {
    "abort",
    "aborted",
    "error",
    "cancelled",
    "canceled",
    "timeout",
    "overloaded",
    "load",
    "unload",
}
_CHOICES = {
    "content_filter",
    "safety",
    "recitation",
    "refusal",
    "tool_calls",
    "tool_use",
    "function_call",
    *_ENDS,
}
_Count = Annotated[int, Field(ge=0, lt=2**31)]


class UnfinishedAnswer(httpx2.RequestError):
    """Raised if the model's response is or may be incomplete; openai's client repeats the request.

    ``reason``: one word, for counts (such as ``null`` or ``content_filter``). ``lasting``: True if a
    repetition would most likely get the same response.
    """

    def __init__(self, reason: str, words: str, lasting: bool) -> None:
        super().__init__(words)
        self.reason = reason
        self.lasting = lasting


class Part(BaseModel):
    """Base of all parts of an answer: types are not converted."""

    model_config = ConfigDict(strict=True)


class TokenCounts(Part):
    """The server's token counts, its field ``usage``."""

    prompt_tokens: _Count | None = None
    completion_tokens: _Count | None = None
    # Tokens of the prompt that the server has cached: OpenAI's, then Anthropic's names.
    prompt_tokens_details: Any = None
    cache_read_input_tokens: Any = None
    cache_creation_input_tokens: Any = None

    @property
    def read(self) -> int | None:
        """Tokens of the prompt; None if not counted.

        In OpenAI's counts, cached tokens are part of ``prompt_tokens``; in Anthropic's they are counted
        apart. More cached tokens than ``prompt_tokens`` must be apart, so they are added; as many or fewer
        are taken for a part.
        """
        details = self.prompt_tokens_details
        inside = details.get("cached_tokens") if isinstance(details, dict) else None
        apart = [self.cache_read_input_tokens, self.cache_creation_input_tokens]
        cached = max(_count(inside), sum(map(_count, apart)))
        if self.prompt_tokens is None or cached <= self.prompt_tokens:
            return self.prompt_tokens
        return self.prompt_tokens + cached


def _count(value: Any) -> int:
    """``value`` if it is a number of tokens, else 0."""
    return value if type(value) is int and 0 <= value < 2**31 else 0


class BaseChoice(Part):
    """Fields of a choice in both protocols."""

    index: int | None = None
    finish_reason: str | None = None
    error: Any = None

    @property
    def end(self) -> FinishReason | None:
        """Why the response ended; None if it may be incomplete."""
        if self.error:
            return None
        word = (self.finish_reason or "").lower()
        if word in _ENDS:
            return FinishReason.END
        return FinishReason.LENGTH if word in _LENGTHS else None

    def unfinished(self, error: Any, words: str) -> UnfinishedAnswer:
        """The error of this choice. ``error``: the error field of the answer; ``words``: further reasons."""
        word = (self.finish_reason or "").lower()
        error = error or self.error
        if error:
            reason = "error"
        elif not word:
            reason = "null"
        else:
            reason = word if word in _ACCIDENTS | _CHOICES else "other"
        detail = f"; error {json.dumps(error)}" if error else ""
        lasting = not error and word not in _ACCIDENTS
        shown = f"finish_reason {json.dumps(self.finish_reason)}{words}{detail}"
        return UnfinishedAnswer(reason, shown, lasting)


ChoiceT = TypeVar("ChoiceT", bound=BaseChoice)


def first_choice(choices: Sequence[ChoiceT]) -> ChoiceT:
    """The choice with index 0, or the first one."""
    return next((choice for choice in choices if choice.index == 0), choices[0])
