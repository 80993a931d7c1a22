"""Readers of responses with one thought and one action in tags: each gives the action, or None where there is none.

Blanks around an action do not count. The released code has two readers (``one_pair`` on ALFWorld, ``first_pair``
elsewhere), to which an empty action is an action (audit B-42). What a thought names is not read, and a chat template
may have opened the thought: then its end stands alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache

from r3l.core.text import split_thought, with_opening

_TAGS = ("<think>", "</think>", "<action>", "</action>")

Reader = Callable[[str], str | None]


def between(text: str, name: str, any_case: bool = False) -> Iterator[slice]:
    """Where the texts between ``<name>`` and the next ``</name>`` stand, from left to right; in linear time.

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


def each_tag_once(response: str) -> str | None:
    """Of a response with exactly one thought and one action, in any order, and no tag beside theirs."""
    found = split_thought(response)
    beside = f"{found.before}\n{found.after}"
    alone = [beside.count(tag) for tag in _TAGS] == [0, 0, 1, 1]
    return one_pair(response) if found.after is not None and found.thought is not None and alone else None


def one_pair(response: str) -> str | None:
    """Of a response with exactly one thought and one action, in any order; a lone tag beside them does not count."""
    thoughts, actions = pairs(response)
    return actions[0].strip() if thoughts == len(actions) == 1 else None


def pairs(response: str) -> tuple[int, list[str]]:
    """How many thoughts a response has, and the actions outside the first: what a thought names is not done."""
    response = with_opening(response)
    thoughts = list(between(response, "think"))
    thought = thoughts[0] if thoughts else slice(0, 0)
    outside = response[: thought.start], response[thought.stop :]
    return len(thoughts), [text[where] for text in outside for where in between(text, "action")]


def first_pair(response: str) -> str | None:
    """The first action after the end of a thought, whatever else there is."""
    response = with_opening(response)
    thought = next(between(response, "think"), None)
    action = None if thought is None else first_between(response[thought.stop :], "action")
    return None if action is None else action.strip()


def one_action(response: str) -> str | None:
    """Of a response with exactly one action beside its thought; there need not be one."""
    found = split_thought(response)
    actions = [text[where].strip() for text in (found.before, found.after or "") for where in between(text, "action")]
    return actions[0] or None if len(actions) == 1 else None


def first_action(response: str, rest: int = 30) -> str:
    """As verl-agent reads: in lower case, what stands before the first end tag; without tags the last characters."""
    text = response.lower()
    start, end = text.find("<action>"), text.find("</action>")
    return text[-rest:] if start == -1 or end == -1 else text[start + len("<action>") : end].strip()


def opened_action(response: str) -> str:
    """As Trinity-RFT reads: what follows the first tag, closed or not; without one an empty action."""
    _, _, after = response.partition("<action>")
    return after.partition("<action>")[0].partition("</action>")[0].strip()


def labelled_action(label: re.Pattern[str]) -> Reader:
    """As AgentBench reads: what the first group of ``label`` finds first."""

    def read(response: str) -> str | None:
        found = label.search(response)
        return found[1].strip() if found else None

    return read


def last_labelled_action(response: str) -> str:
    """As AgentGym reads: all that follows the last ``Action:``; without one an empty action."""
    return response.rpartition("Action:")[2].strip() if "Action:" in response else ""


def not_empty(read: Reader) -> Reader:
    """``read``, but an empty action is none."""
    return lambda response: read(response) or None


_EXAMPLE = re.compile(r"^(?:> think: (.*)\nOK\.\n)?> (.*)\n", re.MULTILINE)


def example_turns(transcript: str) -> list[tuple[str, str, str]]:
    """(observation, thought, action) of a few-shot transcript of lines: ``> think: WHY``, ``OK.``, ``> ACTION``, ..."""
    parts = _EXAMPLE.split(transcript)
    turns = zip(parts[0::3], parts[1::3], parts[2::3], strict=False)  # what the last action leads to is left out
    return [(seen.strip(), thought or "", action) for seen, thought, action in turns]


def write_response(thought: str, action: str) -> str:
    """A response in the format."""
    return f"<think>{thought}</think><action>{action}</action>"


def action_in(response: str) -> str:
    """The first action of a response, as the release names it in its feedback."""
    return (first_between(response, "action") or "").strip()
