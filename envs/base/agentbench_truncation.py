"""How AgentBench shortens a dialog (src/server/task.py of v0.2)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from r3l.core.text import Message

LIMIT = 3500  # segments of a prompt
_SEGMENT = re.compile(r"[^\W\d_]{1,7}|[^ \n]")


def latest(messages: Sequence[Message], limit: int = LIMIT) -> list[Message]:
    """The first message and the latest ones, from a response on, that have fewer than ``limit`` segments with it; the
    first says how many are left out.
    """
    kept: list[Message] = []
    total = segments(messages[0].content)
    for message in reversed(messages[1:]):
        total += segments(message.content)
        if total >= limit:
            break
        kept.append(message)
    if kept and kept[-1].role == "user":
        kept.pop()
    omitted = len(messages) - 1 - len(kept)
    notice = f"\n\n[Note: {omitted} messages are left out.]" if omitted else ""
    return [replace(messages[0], content=messages[0].content + notice), *reversed(kept)]


def segments(text: str) -> int:
    """Its measure of length: up to 7 letters in a row, or one other character that is no
    space and no line break."""
    return len(_SEGMENT.findall(text))
