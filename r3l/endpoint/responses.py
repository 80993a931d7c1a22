"""Answers of a server, checked field by field: a number instead of a text is an error, not a response.

The `openai` package's own types are not strict enough (they take any JSON) or too strict (servers have their
own finish reasons), so these replace them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Annotated, Any, Self

import httpx2
from pydantic import Field, PrivateAttr, ValidationError, model_validator

from r3l.core.policy import FinishReason, Usage
from r3l.core.text import END_OF_THOUGHT, THOUGHT, well_formed_json, with_think_tags
from r3l.endpoint.answer_fields import BaseChoice, Part, TokenCounts, first_choice
from r3l.files.redact import masked_json

# Commas of an answer. Reading that many values takes a second, in which no other dialog goes on; a response
# of 100,000 tokens has as many token ids.
MOST_VALUES = 500_000
MOST_CHOICES = 128  # as many as OpenAI gives; one is requested
# Types of a message's blocks, and the fields with their texts.
_BLOCKS = ("text", "thinking", "redacted_thinking", "reasoning")
_TEXTS = ("text", "thinking", "reasoning", "summary")
MOST_MARKS = 64  # control tokens that are removed from the end of a text
LONGEST_MARK = 200  # characters of one, with the blanks after it
_Token = Annotated[int, Field(ge=0, lt=2**31)]


class UnusableAnswer(httpx2.RequestError):
    """Raised if the server's response is not JSON, or not of OpenAI's protocol.

    ``text``: its content, which may repeat the request. It is one of httpx2's errors, after which openai's
    client repeats the request.
    """

    def __init__(self, reason: str, content: bytes = b"") -> None:
        super().__init__(reason)
        self.text = content.decode(errors="replace")


# Control tokens by their spelling: <|im_end|>, DeepSeek's with full-width bars, EXAONE's [|endofturn|], Gemma
# 4's <turn|>, <eos>, Seed-OSS's <seed:eos>, <end_of_turn>, </s>, Nemotron's <SPECIAL_12> and <extra_id_1>,
# MiniMax's [e~[. A model's own are known with its tokenizer.
_CONTROL = (
    r"<[|\uff5c][^|\uff5c<>\s]{1,40}[|\uff5c]>|\[\|[^|\[\]\s]{1,40}\|\]|<[^|<>/\s]{1,40}\|>"
    r"|<(?:\w{1,20}:)?(?:eo[adhmpst]|EO[DST])>|\[EO[ST]\]|<end_of_\w{1,20}>|</s>|<pad>"
    r"|<SPECIAL_\d{1,4}>|<extra_id_\d{1,3}>|\[e~\["
)


def read_json_of_server(content: bytes) -> Any:
    """Parse a server's response as JSON; bytes that are not UTF-8 become lone surrogates.

    Raises ValueError if it is not JSON, or has more than MOST_VALUES commas: too many values to read fast.
    """
    if content.count(b",") > MOST_VALUES:
        raise ValueError(f"more than {MOST_VALUES:,} values")
    return json.loads(content.decode(errors="surrogateescape"))


def _text_in(part: Any) -> str:
    """The text in a block of a message, at any depth; "" if it is encrypted (``redacted_thinking``)."""
    if isinstance(part, dict):
        part = next((part[key] for key in _TEXTS if key in part), "")
    if isinstance(part, list):
        return "".join(map(_text_in, part))
    return part if isinstance(part, str) else ""


class Answer(Part):
    """Base of all checked responses of a server: the fields that each may have."""

    usage: TokenCounts | None = None
    _replaced: int = PrivateAttr(0)

    @classmethod
    def read(cls, content: bytes) -> Self:
        """Parse and check a response's body; secrets in it are masked, text that is not Unicode replaced.

        Raises UnusableAnswer naming the first wrong field, or if it is not JSON.
        """
        try:
            value = read_json_of_server(content)
            if isinstance(value, dict):  # the other fields of an answer may be large
                value = {key: value[key] for key in cls.model_fields if key in value}
            value, replaced = well_formed_json(value)
            answer = cls.model_validate(masked_json(value))
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
        """Number of bytes and characters in the response that were not Unicode; each became U+FFFD."""
        return self._replaced

    @property
    def answered_by(self) -> str:
        """Name of the model that the response says it is by; "" if it names none, or is no completion."""
        return ""

    @property
    def was_cut(self) -> bool:
        """True if the model's response was cut off at a token limit; False for a response of another kind."""
        return False

    def check_complete(self) -> None:
        """Raise an error unless the model's response is complete, so that it can be graded.

        UnfinishedAnswer if it may be incomplete, UnusableAnswer if it is missing. This base class accepts
        all.
        """

    @property
    def counted(self) -> Usage | None:
        """The server's token counts of prompt and response; None if it gives neither, 0 for a missing one."""
        usage = self.usage
        if usage is None or usage.prompt_tokens is usage.completion_tokens is None:
            return None
        return Usage(usage.read or 0, usage.completion_tokens or 0)

    @property
    def read_tokens(self) -> int | None:
        """The server's token count of the prompt; None if it gives none."""
        return self.usage.read if self.usage else None

    @property
    def response_tokens(self) -> int | None:
        """The server's token count of the response; None if it gives none."""
        return self.usage.completion_tokens if self.usage else None


class _Completion(Answer):
    """Fields of answers that hold a response."""

    model: Any = None
    system_fingerprint: Any = None
    error: Any = None

    @property
    def answered_by(self) -> str:
        """Model that the answer names, with the server's system fingerprint; "" if it names neither."""
        named = [value for value in (self.model, self.system_fingerprint) if isinstance(value, str) and value]
        return ", ".join(named)


class ChatAnswer(_Completion):
    """A checked response of /chat/completions; only the choice with index 0 is read."""

    class _ChatChoice(BaseChoice):
        class _Message(Part):
            content: str | None = None
            reasoning_content: str | None = None  # of servers that separate the thought from the text
            reasoning: str | None = None  # vLLM's newer name of that field
            tool_calls: list[Any] | None = None

            @model_validator(mode="before")
            @classmethod
            def _without_blocks(cls, message: Any) -> Any:
                """The message with one text and one thought, not in blocks (Mistral, Claude at gateways)."""
                if not isinstance(message, dict):
                    return message  # refused by the fields' types
                for name in ("reasoning", "reasoning_content"):
                    if isinstance(message.get(name), dict | list):  # OpenAI's summary, gateways' details
                        message = message | {name: _text_in(message[name])}
                blocks = message.get("content")
                if not isinstance(blocks, list) or not all(
                    isinstance(block, dict) and block.get("type") in _BLOCKS for block in blocks
                ):
                    return message  # checked field by field
                thought = "".join(_text_in(block) for block in blocks if block["type"] != "text")
                text = "".join(_text_in(block) for block in blocks if block["type"] == "text")
                return message | {"content": text} | ({"reasoning": thought} if thought else {})

            @property
            def thought(self) -> str:
                return self.reasoning_content or self.reasoning or ""

        message: _Message

    choices: list[_ChatChoice] = Field(min_length=1, max_length=MOST_CHOICES)

    @property
    def text(self) -> str:
        """The model's response, with its thought, if any, in <think> tags before it.

        A thought after which nothing follows has no closing tag.
        """
        message = first_choice(self.choices).message
        text = with_think_tags(message.content or "")
        thought = message.thought
        if not thought or END_OF_THOUGHT in text:
            return text
        return f"{THOUGHT}{thought}{END_OF_THOUGHT}{text}" if text else f"{THOUGHT}{thought}"

    def remove_end_marks(self, ends: Sequence[str]) -> bool:
        """Remove control tokens that end the model's turn from the end of the text, in place.

        True if there were any (else the next prompt would have them twice). ``ends``: spellings of the
        model's own end tokens, besides the usual ones.
        """
        message = first_choice(self.choices).message
        marks = "|".join([*(re.escape(end) for end in ends if end.strip()), _CONTROL])
        at_end = re.compile(rf"(?:{marks})\s*\Z")
        content = message.content or ""
        end = len(content)
        for _ in range(MOST_MARKS):
            found = at_end.search(content, max(0, end - LONGEST_MARK), end)
            if found is None:
                break
            end = found.start()
        message.content = content[:end]
        return end < len(content)

    def check_complete(self) -> None:
        """Raise UnfinishedAnswer if the response may be incomplete, calls a tool, or has no text at all."""
        choice = first_choice(self.choices)
        message = choice.message
        if self.error or choice.end is None:
            raise choice.unfinished(self.error, "")
        if choice.end is FinishReason.END:
            if message.tool_calls:
                raise choice.unfinished(None, ", a call of a tool")
            if message.content is None and not message.thought:
                raise choice.unfinished(None, " and no text (null)")

    @property
    def is_respelled(self) -> bool:
        """True if :attr:`text` differs from what the server sent: the thought had another field or marks."""
        message = first_choice(self.choices).message
        return bool(message.thought) or self.text != (message.content or "")

    @property
    def was_cut(self) -> bool:
        return self.finish_reason is FinishReason.LENGTH

    @property
    def finish_reason(self) -> FinishReason:
        """Why the response ended: END or LENGTH (cut off); only after :meth:`check_complete`."""
        return first_choice(self.choices).end or FinishReason.LENGTH


class TokenAnswer(_Completion):
    """A checked response of /completions with ``return_token_ids`` (vLLM from 0.10.2 on)."""

    class _TokenChoice(BaseChoice):
        token_ids: list[_Token] | None = None

    choices: list[_TokenChoice] = Field(min_length=1, max_length=MOST_CHOICES)

    def check_complete(self) -> None:
        """Raise UnfinishedAnswer if the choice may be incomplete, UnusableAnswer if it has no token ids."""
        choice = first_choice(self.choices)
        if self.error or choice.end is None:
            raise choice.unfinished(self.error, "")
        if not choice.token_ids:
            raise UnusableAnswer("choices.0.token_ids: there are none")

    @property
    def ids(self) -> list[int]:
        """Ids of the sampled tokens, the end token included."""
        return first_choice(self.choices).token_ids or []

    @property
    def was_cut(self) -> bool:
        return first_choice(self.choices).end is FinishReason.LENGTH


class ModelList(Answer):
    """A checked response of /models; ``data``: the models, each with its name ``id``."""

    class _Model(Part):
        id: str

    data: list[_Model] = []
