"""Text: chat messages, thoughts in responses, and well-formed Unicode for text from outside."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

DEEPEST = 64  # nested lists and objects in a JSON value; our choice (a reflection has one level)
REPLACEMENT = "\ufffd"
SHOWN = 80  # characters of a wrong value that an error shows
THOUGHT = "<think>"
END_OF_THOUGHT = "</think>"
# How other models mark their thoughts: Magistral, Seed-OSS, Kimi, Command A, Apertus, Gemma 4, gpt-oss.
_CHANNEL = (
    r"(?:<\|end\|>)?(?:<\|start\|>assistant)?<\|channel\|>%s(?:[^<\n]|<\|constrain\|>){0,80}<\|message\|>"
)
_BEGIN = (
    r"\[THINK\]|<seed:think>|\u25c1think\u25b7|<\|START_THINKING\|>|<\|inner_prefix\|>|<\|channel>thought\n"
    rf"|{_CHANNEL % '(?:analysis|commentary)'}"
)
_END = (
    r"\[/THINK\]|</seed:think>|\u25c1/think\u25b7|<\|END_THINKING\|>(?:<\|START_RESPONSE\|>)?"
    rf"|<\|inner_suffix\|>|<channel\|>|{_CHANNEL % 'final'}"
)
_THOUGHT_MARKS = re.compile(f"({_BEGIN})|{_END}")
# Gemini's in the text, at OpenAI's protocol: only at the beginning of a response.
_TAGGED = re.compile(r"\A\s*<thought>(.*?)(?:</thought>|\Z)", re.DOTALL)
# gpt-oss where a server leaves its control tokens out of the text.
_BARE_CHANNELS = re.compile(r"\Aanalysis(?=\S)(.*?)assistant(?:commentary.*?assistant)?final", re.DOTALL)
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Message:
    """One chat message; ``role`` is system, user or assistant."""

    role: str
    content: str


@dataclass(frozen=True)
class Response:
    """A response split around its first thought, which is the text between <think> and </think>.

    Without a thought, ``thought`` is None, ``before`` is empty and ``after`` is the complete text. ``after``
    is None if the thought was cut off, so that its closing tag is missing.
    """

    before: str
    thought: str | None
    after: str | None


def split_thought(text: str) -> Response:
    """Split a response around its first thought, the text between <think> and </think>.

    A text in which </think> comes before any <think> begins inside the thought: the chat template wrote the
    opening tag.
    """
    before, opened, inside = text.partition(THOUGHT)
    if END_OF_THOUGHT in before:  # the chat template has written the opening tag
        before = ""
        opened = THOUGHT
        inside = text
    if not opened:
        return Response("", None, text)
    thought, ended, after = inside.partition(END_OF_THOUGHT)
    return Response(before, thought, after if ended else None)


def with_think_tags(text: str) -> str:
    """The response with <think> and </think> instead of the marks that other models put around thoughts.

    Known marks: Magistral, Seed-OSS, Kimi, Command A, Apertus, Gemma 4, gpt-oss, and <thought> (Gemini) at
    the beginning. Other text is unchanged.
    """
    tagged = _TAGGED.match(text)
    if tagged:
        end = END_OF_THOUGHT if tagged[0].endswith("</thought>") else ""
        text = f"{THOUGHT}{tagged[1]}{end}{text[tagged.end() :]}"
    text = _THOUGHT_MARKS.sub(lambda mark: THOUGHT if mark[1] else END_OF_THOUGHT, text)
    return _BARE_CHANNELS.sub(rf"{THOUGHT}\1{END_OF_THOUGHT}", text)


def after_thought(text: str) -> str:
    """The text after a response's first thought: all of it without a thought; empty if that was cut off."""
    return split_thought(text).after or ""


def without_thoughts(text: str) -> str:
    """The text outside all thoughts of a response, as the next prompt has it; a thought cut off goes too."""
    kept = ""
    found = split_thought(text)
    while found.thought is not None:
        kept += found.before
        text = found.after or ""
        found = split_thought(text)
    return kept + text


def with_opening(text: str) -> str:
    """``text``, with <think> put before it if it has </think> but no <think> (the template wrote that)."""
    return THOUGHT + text if END_OF_THOUGHT in text and THOUGHT not in text else text


def printable(text: str) -> str:
    """The text with control characters escaped (as \\x1b), except line breaks and tabs, for a terminal."""
    return "".join(sign if sign.isprintable() or sign in "\n\t" else ascii(sign)[1:-1] for sign in text)


def counted(number: int, noun: str) -> str:
    """A number with its noun, whose plural ends in s: ``1 task``, ``1,200 tasks``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def shown(value: Any) -> str:
    """Any value's ``repr`` on one line of at most 80 characters (then "..."), for an error message.

    If ``repr`` fails, the name of the value's type in <>.
    """
    try:
        line = " ".join(repr(value).split())
    except Exception:  # noqa: BLE001 - repr may be any code; Python's own fails for very long integers
        line = f"<{type(value).__name__}>"
    return line if len(line) <= SHOWN else f"{line[:SHOWN]}..."


def well_formed(text: str) -> tuple[str, int]:
    """``text`` with U+FFFD instead of lone surrogates, which UTF-8 cannot encode, and their number."""
    return _LONE_SURROGATE.subn(REPLACEMENT, text)


def well_formed_json(value: Any, deepest: int = DEEPEST) -> tuple[Any, int]:
    """A copy of a JSON value with :func:`well_formed` strings and keys, and the number of replacements.

    Raises ValueError if more than ``deepest`` lists and objects are nested in one another.
    """
    if isinstance(value, list | dict) and not deepest:
        raise ValueError(f"more than {DEEPEST} nested lists and objects")
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, list):
        items = [well_formed_json(item, deepest - 1) for item in value]
        return [item for item, _ in items], sum(count for _, count in items)
    if isinstance(value, dict):
        copy = {}
        replaced = 0
        for key, item in value.items():
            key, in_key = well_formed(key)
            copy[key], in_item = well_formed_json(item, deepest - 1)
            replaced += in_key + in_item
        return copy, replaced
    return value, 0
