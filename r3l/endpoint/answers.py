"""What a server may answer, checked field by field: a number where text belongs is an error, not a response.

The `openai` package's own types are not strict enough (they take any JSON) or too strict (servers have finish reasons
of their own), so these stand in their place.
"""

from __future__ import annotations

import json
from typing import Annotated, Self

import httpx2
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError

from r3l.core.policy import FinishReason, Usage
from r3l.core.text import well_formed_json

# A server's own words (content_filter, tool_calls) end a response as its end token does.
_FINISH = {"length": FinishReason.LENGTH}
_REASONS = ("stop", "length", "tool_calls", "content_filter")  # of the protocol; a server may say anything
_Token = Annotated[int, Field(ge=0, lt=2**31)]


class UnusableAnswer(httpx2.RequestError):
    """Not JSON, or not of the protocol; ``text`` is what came, which may repeat what was sent.

    One of httpx2's errors, since openai's client sends a request again after those.
    """

    def __init__(self, reason: str, content: bytes = b"") -> None:
        super().__init__(reason)
        self.text = content.decode(errors="replace")


class _Part(BaseModel):
    model_config = ConfigDict(strict=True)


class _Usage(_Part):
    prompt_tokens: int = Field(0, ge=0)
    completion_tokens: int = Field(0, ge=0)


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
    def missing(self) -> str | None:
        """Why it ended, where it ended without any response (null, no text); None where there is one."""
        return None

    @property
    def counted(self) -> Usage | None:
        """Tokens as the server counts them; None where it does not say."""
        return None if self.usage is None else Usage(self.usage.prompt_tokens, self.usage.completion_tokens)


class ChatAnswer(Answer):
    """Of /chat/completions."""

    class _Choice(_Part):
        class _Message(_Part):
            content: str | None = None
            reasoning_content: str | None = None  # servers that take the thinking out of the text
            reasoning: str | None = None  # vLLM's newer name of it

        message: _Message
        finish_reason: str | None = None

    choices: list[_Choice] = Field(min_length=1)

    @property
    def text(self) -> str:
        """The response, with the thinking where the model wrote it."""
        message = self.choices[0].message
        text, thought = message.content or "", message.reasoning_content or message.reasoning or ""
        return f"<think>{thought}</think>{text}" if thought and "</think>" not in text else text

    @property
    def missing(self) -> str | None:
        """A server answers null with a tool call, or where a filter has removed the text."""
        choice = self.choices[0]
        if choice.message.content is not None or self.text:
            return None
        return choice.finish_reason if choice.finish_reason in _REASONS else "other"

    @property
    def finish_reason(self) -> FinishReason:
        return _FINISH.get(self.choices[0].finish_reason or "", FinishReason.END)


class TokenAnswer(Answer):
    """Of /completions with ``return_token_ids``, which vLLM has since 0.10.2."""

    class _Choice(_Part):
        token_ids: list[_Token] = Field(min_length=1)

    choices: list[_Choice] = Field(min_length=1)

    @property
    def ids(self) -> list[int]:
        """The sampled tokens, the end token included."""
        return self.choices[0].token_ids


class ModelList(Answer):
    """Of /models."""

    class _Model(_Part):
        id: str

    data: list[_Model] = []
