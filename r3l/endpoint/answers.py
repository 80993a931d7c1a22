"""What a server may answer, checked field by field: a number where text belongs is an error, not a response."""

from __future__ import annotations

import json
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError

from r3l.core.policy import FinishReason, Usage
from r3l.core.text import well_formed_json

# A server's own words (content_filter, tool_calls) end a response as its end token does.
_FINISH = {"length": FinishReason.LENGTH}
_REASONS = ("stop", "length", "tool_calls", "content_filter")  # of the protocol; a server may say anything
_Token = Annotated[int, Field(ge=0, lt=2**31)]  # beyond, no tokenizer takes it for a number


class _Part(BaseModel):
    model_config = ConfigDict(strict=True)


class _Message(_Part):
    content: str | None = None
    reasoning_content: str | None = None  # servers that take the thinking out of the text
    reasoning: str | None = None  # vLLM's newer name of it

    @property
    def text(self) -> str:
        """With the thinking where the model wrote it."""
        text, thought = self.content or "", self.reasoning_content or self.reasoning or ""
        return f"<think>{thought}</think>{text}" if thought and "</think>" not in text else text


class _Choice(_Part):
    finish_reason: str | None = None


class _ChatChoice(_Choice):
    message: _Message


class _TokenChoice(_Choice):
    token_ids: list[_Token] = Field(min_length=1)


class _Usage(_Part):
    prompt_tokens: int = Field(0, ge=0)
    completion_tokens: int = Field(0, ge=0)


class Answer(_Part):
    """What chat and completion have in common."""

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
        """How many bytes and characters of it were no Unicode; each is U+FFFD now."""
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

    choices: list[_ChatChoice] = Field(min_length=1)

    @property
    def text(self) -> str:
        """The response."""
        return self.choices[0].message.text

    @property
    def missing(self) -> str | None:
        """As servers answer with a call of a tool, or what a filter has taken away."""
        message, reason = self.choices[0].message, self.choices[0].finish_reason
        if message.content is not None or message.text:
            return None
        return reason if reason in _REASONS else "other"

    @property
    def finish_reason(self) -> FinishReason:
        """Why it ended."""
        return _FINISH.get(self.choices[0].finish_reason or "", FinishReason.END)


class TokenAnswer(Answer):
    """Of /completions with ``return_token_ids``, which vLLM has since 0.10.2."""

    choices: list[_TokenChoice] = Field(min_length=1)

    @property
    def ids(self) -> list[int]:
        """The sampled tokens, the end token included."""
        return self.choices[0].token_ids


class ModelList(Answer):
    """Of /models."""

    class _Model(_Part):
        id: str

    data: list[_Model] = []


class UnusableAnswer(ValueError):
    """No JSON, or none of the protocol; ``text`` is what came, which may hold what was sent."""

    def __init__(self, reason: str, content: bytes = b"") -> None:
        super().__init__(reason)
        self.text = content.decode(errors="replace")
