"""Text: the messages of a chat, thoughts in responses, and text from outside made well-formed Unicode."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

DEEPEST = 64  # lists and objects within one another in a JSON value; our choice (a reflection has one)
REPLACEMENT = "\ufffd"
SHOWN = 80  # characters of a wrong value in an error
THOUGHT, END_OF_THOUGHT = "<think>", "</think>"
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Message:
    """One message of a chat: role in {system, user, assistant}."""

    role: str
    content: str


@dataclass(frozen=True)
class Response:
    """A response around its thought: ``thought`` is None without one, ``after`` None where the thought never ended.

    What follows the thought is the response proper. Without a thought that is all of it.
    """

    before: str
    thought: str | None
    after: str | None


def split_thought(text: str) -> Response:
    """Where the first thought of a response is. Its opening tag is missing where the chat template wrote that one."""
    before, opened, inside = text.partition(THOUGHT)
    if END_OF_THOUGHT in before:
        before, opened, inside = "", THOUGHT, text
    if not opened:
        return Response("", None, text)
    thought, ended, after = inside.partition(END_OF_THOUGHT)
    return Response(before, thought, after if ended else None)


def after_thought(text: str) -> str:
    """What a response says after its thought; nothing where it was cut off inside."""
    return split_thought(text).after or ""


def with_opening(text: str) -> str:
    """A response with the opening tag of its thought where the chat template wrote that one."""
    return THOUGHT + text if END_OF_THOUGHT in text and THOUGHT not in text else text


def printable(text: str) -> str:
    """``text`` without what moves a terminal: control characters but line breaks and tabs stand as \\x1b does."""
    return "".join(sign if sign.isprintable() or sign in "\n\t" else ascii(sign)[1:-1] for sign in text)


def shown(value: Any) -> str:
    """A value of any type in one short line, for an error."""
    try:
        line = " ".join(repr(value).split())
    except Exception:  # noqa: BLE001 - repr is the value's own code; Python's fails for very long integers
        line = f"<{type(value).__name__}>"
    return line if len(line) <= SHOWN else f"{line[:SHOWN]}..."


def well_formed(text: str) -> tuple[str, int]:
    """``text`` with U+FFFD for every lone surrogate, which UTF-8 cannot hold, and how many there were."""
    return _LONE_SURROGATE.subn(REPLACEMENT, text)


def well_formed_json(value: Any, deepest: int = DEEPEST) -> tuple[Any, int]:
    """A JSON value whose texts and keys are :func:`well_formed`, and how many characters were replaced.

    Raises ValueError for more than ``deepest`` lists and objects within one another.
    """
    if isinstance(value, list | dict) and not deepest:
        raise ValueError(f"more than {DEEPEST} lists and objects within one another")
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, list):
        items = [well_formed_json(item, deepest - 1) for item in value]
        return [item for item, _ in items], sum(count for _, count in items)
    if isinstance(value, dict):
        pairs = [(well_formed(key), well_formed_json(item, deepest - 1)) for key, item in value.items()]
        return {key: item for (key, _), (item, _) in pairs}, sum(k + n for (_, k), (_, n) in pairs)
    return value, 0
