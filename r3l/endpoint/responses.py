"""What a server may answer, checked field by field: a number where text belongs is an error, not a response.

The `openai` package's own types are not strict enough (they take any JSON) or too strict (servers have finish reasons
of their own), so these stand in their place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Annotated, Any, Self, TypeVar

import httpx2
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError

from r3l.core.policy import FinishReason, Usage
from r3l.core.text import well_formed_json

# Why a response ended, as servers write it, in lower case. The model ended it, or it reached its limit; any other word,
# and none, leaves open whether the response is whole, so that it is never graded.
_ENDS = {"stop", "stop_sequence", "eos", "eos_token", "end", "end_turn", "endoftext", "complete", "completed", "finish"}
_LENGTHS = {
    *("length", "max_length", "model_length", "max_tokens", "max_new_tokens", "max_output_tokens"),
    *("max_completion_tokens", "token_limit", "model_context_window_exceeded"),
}
_ACCIDENTS = {"abort", "aborted", "error", "cancelled", "canceled", "timeout", "overloaded", "load", "unload"}
_CHOICES = {"content_filter", "safety", "recitation", "refusal", "tool_calls", "tool_use", "function_call", *_ENDS}
_Count = Annotated[int, Field(ge=0, lt=2**31)]
_Token = Annotated[int, Field(ge=0, lt=2**31)]


class UnusableAnswer(httpx2.RequestError):
    """Not JSON, or not of the protocol; ``text`` is what came, which may repeat what was sent.

    One of httpx2's errors, since openai's client sends a request again after those.
    """

    def __init__(self, reason: str, content: bytes = b"") -> None:
        super().__init__(reason)
        self.text = content.decode(errors="replace")


# Ends of a turn as control tokens spell them: the next prompt would have them twice. Bounded for the sake of time.
_END_MARKS = re.compile(r"(?:(?:<\|[^|<>\s]{1,40}\|>|</s>|<end_of_turn>|<eos>)\s{0,4}){1,4}\Z")


class UnfinishedAnswer(httpx2.RequestError):
    """A response that its server broke off, or does not say to be whole. openai's client sends the request again.

    ``reason``: a word for counts. ``lasting``: the same request would most likely be answered the same.
    """

    def __init__(self, reason: str, words: str, lasting: bool) -> None:
        super().__init__(words)
        self.reason, self.lasting = reason, lasting


class _Part(BaseModel):
    model_config = ConfigDict(strict=True)


class _Usage(_Part):
    prompt_tokens: _Count | None = None
    completion_tokens: _Count | None = None


class _Ended(_Part):
    """What the choices of both protocols have in common."""

    index: int | None = None
    finish_reason: str | None = None
    error: Any = None

    @property
    def end(self) -> FinishReason | None:
        """None where the response is not known to be whole or cut off at its limit."""
        word = (self.finish_reason or "").lower()
        if self.error:
            return None
        return FinishReason.END if word in _ENDS else FinishReason.LENGTH if word in _LENGTHS else None

    def unfinished(self, error: Any, words: str) -> UnfinishedAnswer:
        """``error``: that of the whole answer; ``words``: what is wrong beside the reason it gives."""
        word, error = (self.finish_reason or "").lower(), error or self.error
        if error:
            reason = "error"
        else:
            reason = (word if word in _ACCIDENTS | _CHOICES else "other") if word else "null"
        told = f"; error {json.dumps(error)}" if error else ""
        lasting = not error and word not in _ACCIDENTS
        return UnfinishedAnswer(reason, f"finish_reason {json.dumps(self.finish_reason)}{words}{told}", lasting)


ChoiceT = TypeVar("ChoiceT", bound=_Ended)


def _first(choices: Sequence[ChoiceT]) -> ChoiceT:
    """That of index 0, wherever it stands."""
    return next((choice for choice in choices if choice.index == 0), choices[0])


class Answer(_Part):
    """What all answers have in common."""

    usage: _Usage | None = None
    _replaced: int = PrivateAttr(0)

    @classmethod
    def read(cls, content: bytes) -> Self:
        """From JSON. Raises UnusableAnswer, naming the first field that is wrong."""
        try:
            value, replaced = well_formed_json(json.loads(content.decode(errors="surrogateescape")))
            answer = cls.model_validate(value)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "the answer"
            raise UnusableAnswer(f"{where}: {first['msg']}", content) from error
        except (ValueError, RecursionError) as error:
            raise UnusableAnswer(f"it is not JSON ({error})", content) from error
        answer._replaced = replaced
        return answer

    @property
    def replaced(self) -> int:
        """How many bytes and characters of it were not Unicode; each is U+FFFD now."""
        return self._replaced

    @property
    def has_end_marks(self) -> bool:
        """Whether the server left the model's end of turn in a text, which is read without it."""
        return False

    def check_whole(self) -> None:
        """Raises UnfinishedAnswer where it holds no response that could be graded."""

    @property
    def counted(self) -> Usage | None:
        """Tokens as the server counts them; None where it does not say."""
        usage = self.usage
        if usage is None or usage.prompt_tokens is usage.completion_tokens is None:
            return None
        return Usage(usage.prompt_tokens or 0, usage.completion_tokens or 0)

    @property
    def read_tokens(self) -> int | None:
        """Of the prompt, as the server counts them; None where it does not say."""
        return self.usage.prompt_tokens if self.usage else None


class ChatAnswer(Answer):
    """Of /chat/completions."""

    class _Choice(_Ended):
        class _Message(_Part):
            content: str | None = None
            reasoning_content: str | None = None  # servers that take the thinking out of the text
            reasoning: str | None = None  # vLLM's newer name of it
            tool_calls: list[Any] | None = None

            @property
            def thought(self) -> str:
                return self.reasoning_content or self.reasoning or ""

        message: _Message

    choices: list[_Choice] = Field(min_length=1)
    error: Any = None

    @property
    def text(self) -> str:
        """The response, with the thinking where the model wrote it; without an end where no answer follows."""
        message = _first(self.choices).message
        text, thought = _END_MARKS.sub("", message.content or ""), message.thought
        if not thought or "</think>" in text:
            return text
        return f"<think>{thought}</think>{text}" if text else f"<think>{thought}"

    @property
    def has_end_marks(self) -> bool:
        return bool(_END_MARKS.search(_first(self.choices).message.content or ""))

    def check_whole(self) -> None:
        choice = _first(self.choices)
        message = choice.message
        if self.error or choice.end is None:
            raise choice.unfinished(self.error, "")
        if choice.end is FinishReason.END:
            if message.tool_calls:
                raise choice.unfinished(None, ", a call of a tool")
            if message.content is None and not message.thought:
                raise choice.unfinished(None, " and no text (null)")

    @property
    def finish_reason(self) -> FinishReason:
        """Of a response that is whole, or cut off at its limit."""
        return _first(self.choices).end or FinishReason.LENGTH


class TokenAnswer(Answer):
    """Of /completions with ``return_token_ids``, which vLLM has since 0.10.2."""

    class _Choice(_Ended):
        token_ids: list[_Token] | None = None

    choices: list[_Choice] = Field(min_length=1)
    error: Any = None

    def check_whole(self) -> None:
        choice = _first(self.choices)
        if self.error or choice.end is None:
            raise choice.unfinished(self.error, "")
        if not choice.token_ids:
            raise UnusableAnswer("choices.0.token_ids: there are none")

    @property
    def ids(self) -> list[int]:
        """The sampled tokens, the end token included."""
        return _first(self.choices).token_ids or []


class ModelList(Answer):
    """Of /models."""

    class _Model(_Part):
        id: str

    data: list[_Model] = []
