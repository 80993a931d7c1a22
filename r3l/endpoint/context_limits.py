"""Context limits of a server: how its refusals and its /models and /props answers name them.

A full context ends the dialog, so a refusal must be recognized as one with certainty. Error codes decide if
there are any (OpenAI's, llama.cpp's), else the wordings of vLLM, SGLang, TGI, lmdeploy, Gemini, Mistral and
llama.cpp. An error of a chat template never counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

LONGEST = 4_000  # characters of an error that are searched; all of 16 MiB would take a minute
_CODES = {
    "context_length_exceeded",
    "context_length_error",
    "context_window_exceeded",
    "contextwindowexceedederror",
    "exceed_context_size_error",
    "model_max_prompt_tokens_exceeded",
    "tokens_limit_reached",
}
# Statuses of other reasons: access, payment, an unknown address, rate limits, an overloaded server.
_OTHER_STATUSES = {401, 402, 403, 404, 408, 409, 429, 502, 503, 504, 529}
# Words of other reasons: the chat template, a rate or a quota, access, memory, the size of a file.
_OTHER_WORDS = re.compile(
    r"template|jinja|quotas?\b|rate[ _-]?limit|throttl|per[ _-](?:second|minute|hour|day|week|month)\b"
    r"|this (?:day|week|month)\b|try(?:ing)? again (?:in|later|after)|before trying again|too many requests"
    r"|\bcredits?\b|\bplan\b|billing|(?:sign|log)[ -]?in\b|out of memory|\bKV\b|batch[ _]size"
    r"|image (?:input )?size|\bbytes?\b|\d ?[KMG]i?B\b|entity too large",
    re.IGNORECASE,
)
_SIZE = (
    r"(?:(?:context|sequence|input|prompt)[ _-]?(?:length|len|size|window|limit)|session[ _-]len(?:gth)?"
    r"|model[ _-](?:length|len|size|window|(?:token|input) limit)|max[ _]seq[ _]len)"
)
_OVER = r"(?:exceed|longer than|larger than|greater than|too (?:long|large|big)|overflow)"
_WORDS = re.compile(
    rf"max(?:imum)?[ _]{_SIZE}|{_OVER}.{{0,60}}{_SIZE}|{_SIZE}.{{0,40}}{_OVER}"
    rf"|{_OVER}\w*.{{0,30}}(?:n_ctx|max_\w*len)"
    r"|(?:prompt|inputs?|messages|dialog|conversation|request) (?:is|are|was) too (?:long|large)"
    r"|range of input length should be|prompt exceeds max length|model input length limit"
    r"|(?:maximum supported sequence|max_seq|total sequence)[ _]len(?:gth)?"
    r"|too many (?:input )?tokens"
    r"|token count\b.{0,20}exceeds"
    r"|exceeds? the (?:maximum|max|configured)\b.{0,20}(?:limit|number) of .{0,10}tokens"
    r"|max_new_tokens` must be <=|`inputs` must have less than|run out of tokens"
    r"|context (?:window )?(?:is )?full"
    r"|reduce the (?:length|number) of (?:the )?(?:\w+ )?(?:messages|prompt|input|tokens)|exceed context"
    r"|at most \d+ completion tokens|supported range is from 1|allowed number of output tokens",
    re.IGNORECASE,
)
_N = r"\b(\d{1,9})\b"
_LIMIT = (
    rf"> {_N}"
    r"|(?<!requires a )(?:context|model|sequence|session|max(?:imum)? input)[ _-]?"
    r"(?:length|len|size|window|limit)"
    rf"(?: is(?: only)?| of|:)? \(?{_N}|must be <= {_N}|less than {_N} tokens|tokens allowed \({_N}|"
    rf"{_N} maximum context|limit of {_N}|exceed max_seq_len \({_N}|token limit: {_N}"
)
_SUM = rf"limit: {_N} \+ {_N} > {_N}"  # Anthropic's: prompt + response > context
_PROMPT = (
    rf"(?<!at least ){_N} (?:tokens )?(?:in|from) (?:the|your) (?:input|messages|prompt)|{_N} of text input|"
    rf"(?<!at least ){_N} (?:input|prompt) tokens|{_N} `inputs` tokens|Given: {_N}|token count \({_N}|"
    rf"(?:request|prompt|input|(?:prompt|input) length|requested tokens) \((?:length )?{_N}|"
    rf"(?<!maximum )(?:input|prompt) length (?:is |of )?{_N}|resulted in {_N} tokens|"
    rf"contains {_N} tokens|too long: {_N}"
)
# vLLM from 0.15 on names the limit of the prompt: context minus requested response. Some versions call that
# the model's context length ("your request has"); later ones name the context again ("you requested"). It is
# negative if the requested response exceeds the context.
_SIGNED = r"(-?\d{1,9})\b"
_OF_VLLM = r"However, your request has .*\(parameter=input_tokens"
_INPUT_LIMIT = rf"maximum input length of {_SIGNED}|maximum context length is {_SIGNED} tokens\. {_OF_VLLM}"
_TOTAL = rf"requested (?:a total of |about )?{_N} tokens|for a total of {_N} tokens"
_RESPONSE = rf"at most {_N} completion tokens|> {_N}, which is the maximum allowed"
_ROOMS = ("max_model_len", "context_length", "max_context_length", "context_window", "n_ctx")


@dataclass(frozen=True)
class ContextRoom:
    """Token counts that a server names when it refuses a request for a full context; None: not named.

    ``limit``: most tokens of prompt and response together; ``prompt``: tokens of the prompt; ``total``:
    tokens of prompt and requested response; ``response``: most tokens of a response; ``input_limit``: most
    tokens of a prompt, given the requested response.
    """

    limit: int | None = None
    prompt: int | None = None
    total: int | None = None
    response: int | None = None
    input_limit: int | None = None

    def left(self, requested: int, limit: int | None, prompt: int | None) -> int | None:
        """Number of tokens left for a response, after a request for a response of ``requested`` was refused.

        0 or negative if none are left, None if unknown. ``limit``, ``prompt``: most tokens of the context and
        tokens of the prompt, if known from elsewhere (the refusal's own limit goes first); else None.
        """
        if prompt is None:
            prompt = self.prompt
        if prompt is None and self.total is not None and self.total > requested:
            prompt = self.total - requested
        limit = self.limit or limit
        if limit is None and self.input_limit is not None:
            limit = self.input_limit + requested
        known = [] if self.response is None else [self.response]
        if limit is not None and prompt is not None:
            known.append(limit - prompt)
        return min(known, default=None)


def room_of_refusal(status: int, text: str) -> ContextRoom | None:
    """The token counts that a refusal names if its reason is a full context; None for any other reason.

    Each count is None if the refusal does not name it. ``status``: the HTTP status; below 400, and for
    access, payment, rate limits or an overloaded server, it has another reason. ``text``: the response's
    body, in which error codes decide, else the wordings of known servers.
    """
    if status < 400 or status in _OTHER_STATUSES:
        return None
    # Is it the context? Error codes decide, else the words of the message; never the chat template's.
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    objects = list(_objects(value))
    fields = ("code", "type", "error_type", "status")
    codes = {str(found.get(key)).lower() for found in objects for key in fields}
    said = message(text)
    if len(said) > LONGEST:  # a server may repeat the prompt before or after its reason
        said = f"{said[: LONGEST // 2]} {said[-LONGEST // 2 :]}"
    if not codes & _CODES and (_OTHER_WORDS.search(said) or not _WORDS.search(said)):
        return None

    # The numbers, from separate fields (llama.cpp) or from the message.
    added = re.search(_SUM, said)
    if added is not None:
        return ContextRoom(limit=int(added[3]), prompt=int(added[1]))
    limit = _field(objects, "n_ctx") or _number(_LIMIT, said)
    input_limit = _number(_INPUT_LIMIT, said)
    return ContextRoom(
        None if limit == input_limit else limit,
        _field(objects, "n_prompt_tokens") or _number(_PROMPT, said),
        _number(_TOTAL, said),
        _number(_RESPONSE, said),
        input_limit,
    )


def message(text: str) -> str:
    """The message in the body ``text`` of an error response; all of ``text`` if it is no JSON or has none."""
    try:
        objects = list(_objects(json.loads(text)))
    except (ValueError, RecursionError):
        return text
    for each in objects:
        for key in ("message", "error", "detail"):
            value = each.get(key)
            if isinstance(value, str) and value.strip():
                return value
    return text


def entry_of_model(models: Any, name: str) -> dict[str, Any]:
    """The entry of model ``name`` in ``models``, the parsed JSON of /models.

    If it has no such name, the only entry if there is one, else {}; {} also for malformed JSON.
    """
    data = models.get("data") if isinstance(models, dict) else None
    if not isinstance(data, list):
        return {}
    entries = [entry for entry in data if isinstance(entry, dict)]
    for entry in entries:
        if entry.get("id") == name:
            return entry
    return entries[0] if len(entries) == 1 else {}


def limit_of_model(models: Any, name: str) -> int | None:
    """The context limit (tokens) of model ``name`` in the parsed JSON of /models; None if it names none."""
    entry = entry_of_model(models, name)
    return _first_room(entry, entry.get("meta"))


def limit_of_properties(properties: Any) -> int | None:
    """The context limit (tokens) in the parsed JSON of llama.cpp's /props; None if it names none."""
    if not isinstance(properties, dict):
        return None
    return _first_room(properties.get("default_generation_settings"), properties)


def _first_room(*objects: Any) -> int | None:
    """The first context limit among the objects' fields; None if there is none."""
    for value in objects:
        if not isinstance(value, dict):
            continue
        for key in _ROOMS:
            number = _field([value], key)
            if number is not None:
                return number
    return None


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """Objects of an error's JSON, the error first: Gemini wraps it in a list, FastAPI in ``detail``."""
    if isinstance(value, list) and value:
        value = value[0]
    if isinstance(value, dict):
        for key in ("error", "detail"):
            if isinstance(value.get(key), dict):
                yield value[key]
        yield value


def _field(objects: list[dict[str, Any]], key: str) -> int | None:
    """The first number of tokens (a positive integer) under ``key``; None if there is none."""
    for each in objects:
        value = each.get(key)
        if type(value) is int and 0 < value < 2**31:
            return value
    return None


def _number(pattern: str, text: str) -> int | None:
    """The number that ``pattern`` captures in ``text``."""
    found = re.search(pattern, text, re.IGNORECASE)
    return int(next(filter(None, found.groups()))) if found else None
