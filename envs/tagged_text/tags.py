"""Finding what stands between tags, in time linear in the text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache


def between(text: str, name: str, any_case: bool = False) -> Iterator[slice]:
    """Where the texts between ``<name>`` and the next ``</name>`` stand, from left to right.

    A further ``<name>`` in such a text is part of it, and one that is never closed is none.
    """
    start: int | None = None
    for tag in _tag(name, any_case).finditer(text):
        if not tag[1]:
            start = tag.end() if start is None else start
        elif start is not None:
            yield slice(start, tag.start())
            start = None


def first_between(text: str, name: str, any_case: bool = False) -> str | None:
    """The first text between such tags; None where there is none."""
    where = next(between(text, name, any_case), None)
    return None if where is None else text[where]


@cache
def _tag(name: str, any_case: bool) -> re.Pattern[str]:
    return re.compile(rf"<(/?){name}>", re.IGNORECASE if any_case else 0)
