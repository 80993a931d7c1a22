"""Brackets around an answer, and the members of a list."""

from __future__ import annotations

import re

SETS = (("\\{", "\\}"), ("{", "}"))
_BRACKET = re.compile(r"\\\{|\\\}|[()\[\]{}]")


def enclosing(text: str) -> tuple[str, str] | None:
    r"""The brackets around all of ``text``, such as ``("(", "]")``; None if it has none.

    Any closing bracket closes any opening one, as in intervals. Braces without a backslash count only around
    a list, as in ``{1,2}``.
    """
    depth = 0
    first = None
    last = None
    for bracket in _BRACKET.finditer(text):
        opens = bracket[0] in ("(", "[", "{", "\\{")
        if opens and depth == 0:
            if first is not None:
                return None
            first = bracket
        depth += 1 if opens else -1
        if depth < 0:
            return None
        last = bracket
    if first is None or last is None or depth or first.start() or last.end() != len(text):
        return None
    return None if first[0] == "{" and "," not in text else (first[0], last[0])


def members(text: str) -> list[str]:
    """The parts of ``text`` between commas or semicolons outside brackets."""
    parts = []
    depth = 0
    start = 0
    for token in re.finditer(r"\\\{|\\\}|[()\[\]{},;]", text):
        if token[0] in ",;":
            if depth == 0:
                parts.append(text[start : token.start()].strip())
                start = token.end()
        else:
            depth += 1 if token[0] in ("(", "[", "{", "\\{") else -1
    return [*parts, text[start:].strip()]
