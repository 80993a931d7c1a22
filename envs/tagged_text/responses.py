"""The response format that the agentic environments share: one thought and one action, in tags."""

from __future__ import annotations

import re
from collections.abc import Sequence

REPEATS = 3  # identical actions in a row that end an episode (audit 3.1)

_THINK = re.compile(r"<think>.*?</think>", re.DOTALL)
_ACTION = re.compile(r"<action>(.*?)</action>", re.DOTALL)
_TAGS = ("<think>", "</think>", "<action>", "</action>")


def read_action(response: str) -> str | None:
    """The action of a response with exactly one thought and one action, in any order; None for any other."""
    actions = _ACTION.findall(response)
    if any(response.count(tag) != 1 for tag in _TAGS) or len(actions) != 1 or not _THINK.search(response):
        return None
    return str(actions[0]).strip()


def write_response(thought: str, action: str) -> str:
    """A response in the format."""
    return f"<think>{thought}</think><action>{action}</action>"


def repeats(actions: Sequence[str], action: str) -> bool:
    """Whether ``action`` would be the same for the REPEATS-th time in a row."""
    return len(actions) >= REPEATS - 1 and set(actions[-(REPEATS - 1) :]) == {action}
