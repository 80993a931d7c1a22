"""The response format that the agentic environments share: one thought and one action, in tags.

A reader gives the action of a response, without the blanks around it, or None where there is none. The released code
has two (``one_pair`` on ALFWorld, ``first_pair`` elsewhere), to which an empty action is an action (audit B-42).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from r3l.envs.tagged_text.tags import between, first_between

REPEATS = 3  # identical actions in a row that end an episode (audit 3.1)

_TAGS = ("<think>", "</think>", "<action>", "</action>")

Reader = Callable[[str], str | None]


def each_tag_once(response: str) -> str | None:
    """Of a response with exactly one thought and one action, in any order, and no tag beside theirs."""
    return one_pair(response) if all(response.count(tag) == 1 for tag in _TAGS) else None


def one_pair(response: str) -> str | None:
    """Of a response with exactly one thought and one action, in any order; a lone tag beside them does not count."""
    thoughts, actions = list(between(response, "think")), list(between(response, "action"))
    return response[actions[0]].strip() if len(thoughts) == len(actions) == 1 else None


def first_pair(response: str) -> str | None:
    """The first action after the end of a thought, whatever else there is."""
    thought = next(between(response, "think"), None)
    action = None if thought is None else first_between(response[thought.stop :], "action")
    return None if action is None else action.strip()


def not_empty(read: Reader) -> Reader:
    """``read``, but an empty action is none."""
    return lambda response: read(response) or None


def write_response(thought: str, action: str) -> str:
    """A response in the format."""
    return f"<think>{thought}</think><action>{action}</action>"


def repeats(actions: Sequence[str], action: str) -> bool:
    """Whether ``action`` would be the same for the REPEATS-th time in a row."""
    return len(actions) >= REPEATS - 1 and set(actions[-(REPEATS - 1) :]) == {action}
