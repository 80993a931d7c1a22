"""Truncation of a long dialog as in AgentBench (src/server/task.py of v0.2)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from r3l.core.text import Message

LIMIT = 3500  # segments of a prompt
_SEGMENT = re.compile(r"[^\W\d_]{1,7}|[^ \n]")


def truncate(messages: Sequence[Message], limit: int = LIMIT) -> list[Message]:
    """Shorten a dialog to fewer than ``limit`` segments: keep the first message and the last ones that fit.

    A segment is AgentBench's unit of length (:func:`segments`). The first of the last messages is a response
    of the model. A note at the end of the first message says how many messages are left out, if any are.
    ``messages``: at least one; it is not changed.
    """
    kept: list[Message] = []
    total = segments(messages[0].content)
    for message in reversed(messages[1:]):
        total += segments(message.content)
        if total >= limit:
            break
        kept.append(message)
    # An observation without the response before it would follow the first user message directly.
    if kept and kept[-1].role == "user":
        kept.pop()
    omitted = len(messages) - 1 - len(kept)
    notice = f"\n\n[Note: {omitted} messages are left out.]" if omitted else ""
    return [replace(messages[0], content=messages[0].content + notice), *reversed(kept)]


def segments(text: str) -> int:
    """AgentBench's length of a text: runs of up to 7 letters, and single other characters except blanks."""
    return len(_SEGMENT.findall(text))
