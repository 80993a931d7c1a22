"""The final answer in a response, by two rules that are reported side by side.

``strict`` takes what the prompt asked for and nothing else: the last ``\\boxed{...}``, else the last
``<answer>...</answer>``, after the thinking. ``flexible`` also takes the usual other ways of saying an answer, and
at last the last number; it says what a response would have scored with a lenient reader.
"""

from __future__ import annotations

import re
from typing import Literal

Rule = Literal["strict", "flexible"]

_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL | re.IGNORECASE)
_ANNOUNCED = (
    re.compile(r"####\s*(.+)"),
    re.compile(r"(?:final\s+)?answer\s*(?:is|:|=)+\s*(.+)", re.IGNORECASE),
)
_NUMBER = re.compile(r"-?\$?\d[\d,]*(?:\.\d+)?(?:\s*/\s*\d+)?%?")
_THINKING = "<think>"
_END_OF_THINKING = "</think>"
_BOXED = re.compile(r"\\(?:boxed|fbox)\s*\{")


def extract(response: str, rule: Rule) -> str | None:
    """The answer that ``response`` gives, without its box; None where the rule finds none."""
    text = _after_thinking(response, rule)
    answer = boxed(text)
    if answer is None and (tagged := _ANSWER.findall(text)):
        answer = boxed(tagged[-1]) or tagged[-1]
    if answer is None and rule == "flexible":
        answer = _announced(text)
    return (answer or "").strip() or None


def _after_thinking(response: str, rule: Rule) -> str:
    """The response without its thinking. One that never ended holds no answer, but a lenient reader looks into it."""
    _, ended, after = response.rpartition(_END_OF_THINKING)
    if not ended and _THINKING in response and rule == "strict":
        return ""
    return after


def boxed(text: str) -> str | None:
    """What stands in the last box with balanced braces; None without one."""
    for start in reversed(list(_BOXED.finditer(text))):
        depth = 1
        for end in range(start.end(), len(text)):
            depth += {"{": 1, "}": -1}.get(text[end], 0) if text[end - 1] != "\\" else 0
            if depth == 0:
                return text[start.end() : end]
    return None


def _announced(text: str) -> str | None:
    for pattern in _ANNOUNCED:
        if answers := pattern.findall(text):
            return str(answers[-1]).strip().rstrip(".").strip("*$ ")
    numbers = _NUMBER.findall(text)
    return numbers[-1] if numbers else None
