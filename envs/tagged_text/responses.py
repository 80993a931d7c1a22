"""The response format that the agentic environments share: one thought and one action, in tags.

A reader gives the action of a response, without the blanks around it, or None where there is none. The released code
has two (``one_pair`` on ALFWorld, ``first_pair`` elsewhere), to which an empty action is an action (audit B-42).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

REPEATS = 3  # identical actions in a row that end an episode (audit 3.1)

_THINK = re.compile(r"<think>.*?</think>", re.DOTALL)
_ACTION = re.compile(r"<action>(.*?)</action>", re.DOTALL)
_THINK_THEN_ACTION = re.compile(r"<think>.*?</think>.*?<action>(.*?)</action>", re.DOTALL)
_TAGS = ("<think>", "</think>", "<action>", "</action>")

Reader = Callable[[str], str | None]


def each_tag_once(response: str) -> str | None:
    """Of a response with exactly one thought and one action, in any order, and no tag beside theirs."""
    return one_pair(response) if all(response.count(tag) == 1 for tag in _TAGS) else None


def one_pair(response: str) -> str | None:
    """Of a response with exactly one thought and one action, in any order; a lone tag beside them does not count."""
    actions = _ACTION.findall(response)
    return str(actions[0]).strip() if len(actions) == len(_THINK.findall(response)) == 1 else None


def first_pair(response: str) -> str | None:
    """The first action after the end of a thought, whatever else there is."""
    match = _THINK_THEN_ACTION.search(response)
    return match[1].strip() if match else None


def not_empty(read: Reader) -> Reader:
    """``read``, but an empty action is none."""
    return lambda response: read(response) or None


def write_response(thought: str, action: str) -> str:
    """A response in the format."""
    return f"<think>{thought}</think><action>{action}</action>"


def repeats(actions: Sequence[str], action: str) -> bool:
    """Whether ``action`` would be the same for the REPEATS-th time in a row."""
    return len(actions) >= REPEATS - 1 and set(actions[-(REPEATS - 1) :]) == {action}
