"""Room for a response: what a server's refusal says of it, and where servers tell how many tokens they have room for.

Only a refusal that is about room may end a dialog for want of it. Fields decide where there are any (OpenAI's and
llama.cpp's codes), else the wordings of vLLM, SGLang, TGI, lmdeploy, Gemini, Mistral, llama.cpp; an error of a chat
template is never one, whatever words it contains.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_CODES = {
    *("context_length_exceeded", "exceed_context_size_error", "context_window_exceeded", "contextwindowexceedederror"),
    *("context_length_error", "model_max_prompt_tokens_exceeded"),
}
_TEMPLATE = re.compile(r"template|jinja", re.IGNORECASE)
_SIZE = r"(?:context|model|sequence|session|input|prompt)[ _-]?(?:length|len|size|window|limit)"
_OVER = r"(?:exceed|longer than|larger than|greater than|too (?:long|large|big)|overflow)"
_WORDS = re.compile(
    rf"max(?:imum)?[ _]{_SIZE}|{_OVER}.{{0,60}}{_SIZE}|{_SIZE}.{{0,40}}{_OVER}|{_OVER}\w*.{{0,30}}(?:n_ctx|max_\w*len)"
    r"|(?:prompt|inputs?|messages|dialog|conversation|request) (?:is|are|was) too (?:long|large)"
    r"|too many (?:input )?tokens"
    r"|token count\b.{0,20}exceeds|exceeds? the (?:maximum|max|configured)\b.{0,20}(?:limit|number) of .{0,10}tokens"
    r"|max_new_tokens` must be <=|`inputs` must have less than|run out of tokens|context (?:window )?(?:is )?full"
    r"|reduce the (?:length|number) of (?:the )?(?:\w+ )?(?:messages|prompt|input|tokens)|exceed context"
    r"|at most \d+ completion tokens|supported range is from 1|allowed number of output tokens",
    re.IGNORECASE,
)
_N = r"\b(\d{1,9})\b"
_LIMIT = (
    rf"> {_N}|(?:context|model|sequence|session|max(?:imum)? input)[ _-]?(?:length|len|size|window|limit)"
    rf"(?: is| of|:)? \(?{_N}|must be <= {_N}|less than {_N} tokens|tokens allowed \({_N}|"
    rf"{_N} maximum context|limit of {_N}"
)
_PROMPT = (
    rf"(?<!at least ){_N} (?:tokens )?(?:in|from) the (?:input|messages|prompt)|"
    rf"(?<!at least ){_N} (?:input|prompt) tokens|{_N} `inputs` tokens|Given: {_N}|token count \({_N}|"
    rf"(?:request|prompt|input|prompt length|requested tokens) \((?:length )?{_N}|"
    rf"(?<!maximum )(?:input|prompt) length (?:is |of )?{_N}|resulted in {_N} tokens|"
    rf"contains {_N} tokens|too long: {_N}"
)
_TOTAL = rf"requested (?:a total of )?{_N} tokens"
_RESPONSE = rf"at most {_N} completion tokens|> {_N}, which is the maximum allowed"
_ROOMS = ("max_model_len", "context_length", "max_context_length", "context_window", "n_ctx")


@dataclass(frozen=True)
class Room:
    """Tokens as a refusal names them: there are at all, has the prompt, are in prompt and response, may a response
    have."""

    limit: int | None = None
    prompt: int | None = None
    total: int | None = None
    response: int | None = None

    def left(self, asked: int, limit: int | None, prompt: int | None) -> int | None:
        """For a response of ``asked`` tokens that was refused; less than 1 where there is none, None if unknown.

        ``limit``, ``prompt``: where they are known otherwise.
        """
        if prompt is None:
            prompt = self.prompt
        if prompt is None and self.total is not None and self.total > asked:
            prompt = self.total - asked
        limit = self.limit or limit
        known = [] if self.response is None else [self.response]
        if limit is not None and prompt is not None:
            known.append(limit - prompt)
        return min(known, default=None)


def refusal_for_room(status: int, text: str) -> Room | None:
    """What an error says of room; None where the request was refused for another reason."""
    if status < 400 or status in (401, 403, 404, 429):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    objects = list(_objects(value))
    words = {str(found.get(key)).lower() for found in objects for key in ("code", "type", "error_type", "status")}
    said = message(text)
    if not words & _CODES and (_TEMPLATE.search(said) or not _WORDS.search(said)):
        return None
    return Room(
        _field(objects, "n_ctx") or _number(_LIMIT, said),
        _field(objects, "n_prompt_tokens") or _number(_PROMPT, said),
        _number(_TOTAL, said),
        _number(_RESPONSE, said),
    )


def message(text: str) -> str:
    """What an error's JSON says to a person; the whole ``text`` where there is no such field."""
    try:
        objects = list(_objects(json.loads(text)))
    except (ValueError, RecursionError):
        return text
    found = [
        value for each in objects for key in ("message", "error", "detail") if isinstance(value := each.get(key), str)
    ]
    return next((value for value in found if value.strip()), text)


def entry_of_model(models: Any, name: str) -> dict[str, Any]:
    """What the answer of /models says of a model; of the only one, whatever it is called."""
    data = models.get("data") if isinstance(models, dict) else None
    entries = [entry for entry in data if isinstance(entry, dict)] if isinstance(data, list) else []
    named = [entry for entry in entries if entry.get("id") == name] or (entries if len(entries) == 1 else [])
    return named[0] if named else {}


def limit_of_model(models: Any, name: str) -> int | None:
    """Tokens in all, from the answer of /models."""
    entry = entry_of_model(models, name)
    return _first_room(entry, entry.get("meta"))


def limit_of_properties(properties: Any) -> int | None:
    """Tokens in all, from the answer of llama.cpp's /props."""
    if not isinstance(properties, dict):
        return None
    return _first_room(properties.get("default_generation_settings"), properties)


def _first_room(*objects: Any) -> int | None:
    found = (_field([value], key) for value in objects if isinstance(value, dict) for key in _ROOMS)
    return next((number for number in found if number), None)


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """The error first: Gemini wraps all in a list, FastAPI in ``detail``, others in nothing."""
    if isinstance(value, list) and value:
        value = value[0]
    if isinstance(value, dict):
        yield from (part for key in ("error", "detail") if isinstance(part := value.get(key), dict))
        yield value


def _field(objects: list[dict[str, Any]], key: str) -> int | None:
    values = (each.get(key) for each in objects)
    return next((value for value in values if type(value) is int and 0 < value < 2**31), None)


def _number(pattern: str, text: str) -> int | None:
    found = re.search(pattern, text, re.IGNORECASE)
    return int(next(filter(None, found.groups()))) if found else None
