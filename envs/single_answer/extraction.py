"""The final answer in a response, by two rules that are reported side by side.

``strict`` takes what the prompt asked for and nothing else: the last ``\\boxed{...}``, else the last
``<answer>...</answer>``, after the thinking. ``flexible`` also takes the usual other ways of saying an answer, and
at last the last number; it says what a response would have scored with a lenient reader.
"""

from __future__ import annotations

import re
from typing import Literal

from r3l.envs.tagged_text.tags import between

Rule = Literal["strict", "flexible"]

_ANNOUNCED = (
    re.compile(r"####\s*(.+)"),
    re.compile(r"(?:final\s+)?answer\s*(?:is|:|=)+\s*(.+)", re.IGNORECASE),
)
_NUMBER = re.compile(r"-?\$?\d[\d,]*(?:\.\d+)?(?:\s*/\s*\d+)?%?")
_THINKING = "<think>"
_END_OF_THINKING = "</think>"
_BOXED = re.compile(r"\\(?:boxed|fbox)\s*\{")
_BRACE = re.compile(r"(?<!\\)[{}]")  # a backslash before it makes it a character


def extract(response: str, rule: Rule) -> str | None:
    """The answer that ``response`` gives, without its box; None where the rule finds none."""
    text = _after_thinking(response, rule)
    answer = boxed(text)
    if answer is None and (tagged := list(between(text, "answer", any_case=True))):
        answer = boxed(text[tagged[-1]]) or text[tagged[-1]]
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
    closed_at = _pairs(text)
    starts = (box.end() for box in _BOXED.finditer(text) if box.end() in closed_at)
    last = max(starts, default=None)
    return None if last is None else text[last : closed_at[last]]


def _pairs(text: str) -> dict[int, int]:
    """Where the brace ends that is opened before a place; braces that have no other are left out."""
    opened: list[int] = []
    closed_at: dict[int, int] = {}
    for brace in _BRACE.finditer(text):
        if brace[0] == "{":
            opened.append(brace.end())
        elif opened:
            closed_at[opened.pop()] = brace.start()
    return closed_at


def _announced(text: str) -> str | None:
    for pattern in _ANNOUNCED:
        if answers := pattern.findall(text):
            return str(answers[-1]).strip().rstrip(".").strip("*$ ")
    numbers = _NUMBER.findall(text)
    return numbers[-1] if numbers else None
