"""Inequalities as the intervals that they describe: ``x<2`` as ``(-\\infty,2)``.

math-verify 0.9.0 takes an interval for a gold inequality, not an inequality for a gold interval.
"""

from __future__ import annotations

import re

_SIGN = r"(<=|>=|<|>|\\(?:leqslant|geqslant|leq|geq|le|ge|lt|gt)(?![A-Za-z]))"
_NAME = r"(?:[A-Za-z]|\\(?:theta|alpha|beta|lambda))"
_END = r"([^<>=]+?)"  # other signs are commands, which _SIGNS finds
_BETWEEN = re.compile(rf"{_END} *{_SIGN} *({_NAME}) *{_SIGN} *{_END}")
_ABOVE_OR_BELOW = re.compile(rf"({_NAME}) *{_SIGN} *{_END}")
_TURNED = re.compile(rf"{_END} *{_SIGN} *({_NAME})")
_SIGNS = re.compile(_SIGN)
_OR = re.compile(r" *(?:\\(?:text|textrm|mathrm|mbox) ?\{ *or *\}|\\(?:lor|vee|cup)(?![A-Za-z])|\bor\b) *")


def as_intervals(gold: str, answer: str) -> list[tuple[str, str]]:
    """The pair of two normalized answers with inequalities as intervals; empty if none is an inequality.

    Also empty if both are inequalities in different letters. An interval has no letter: ``(2,3)``, which may
    also be a point, is then ``2<x<3``.
    """
    one = _union(gold)
    other = _union(answer)
    if one is None and other is None or one and other and one[0] != other[0]:
        return []
    return [(one[1] if one else gold, other[1] if other else answer)]


def _union(text: str) -> tuple[str, str] | None:
    """(letter, interval) of an inequality in one letter, or the union of several joined by ``or``.

    None for any other text; a comma between inequalities may mean "and" or "or", so it is not read.
    """
    intervals = [_interval(part.strip()) for part in _OR.split(text)]
    known = [interval for interval in intervals if interval]
    if len(known) < len(intervals) or len({name for name, _ in known}) != 1:
        return None
    return known[0][0], "\\cup".join(interval for _, interval in known)


def _interval(inequality: str) -> tuple[str, str] | None:
    """The name and the interval of one inequality; None for any other text."""
    signs = len(_SIGNS.findall(inequality))
    between = _BETWEEN.fullmatch(inequality) if signs == 2 else None
    if between:
        low, first, name, second, high = between.groups()
        if _is_less(first) != _is_less(second):
            return None
        ends = (low, first, second, high) if _is_less(first) else (high, second, first, low)
        return _checked(name, *ends)
    found = _ABOVE_OR_BELOW.fullmatch(inequality) if signs == 1 else None
    if found:
        name, sign, end = found.groups()
        less = _is_less(sign)
    else:
        turned = _TURNED.fullmatch(inequality) if signs == 1 else None
        if turned is None:
            return None
        end, sign, name = turned.groups()
        less = not _is_less(sign)
    if less:
        return _checked(name, "-\\infty", "<", sign, end)
    return _checked(name, end, sign, "<", "\\infty")


def _checked(name: str, low: str, first: str, second: str, high: str) -> tuple[str, str] | None:
    """The interval from ``low`` to ``high``, closed at signs with equality; None if an end is a list."""
    if re.search(r"[,;&]", low + high):
        return None
    opening = "[" if _is_closed(first) else "("
    closing = "]" if _is_closed(second) else ")"
    return name, f"{opening}{low},{high}{closing}"


def _is_less(sign: str) -> bool:
    return sign[0] == "<" or sign.startswith("\\l")


def _is_closed(sign: str) -> bool:
    return sign.endswith("=") or "e" in sign
