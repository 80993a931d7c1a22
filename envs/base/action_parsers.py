"""Parsers of responses with one thought and one action in tags; each returns the action, or None.

Blanks around an action are ignored. The released code has two parsers (``one_pair`` for ALFWorld,
``first_pair`` for the others), and both accept an empty action (audit B-42). Tags inside a thought are
never parsed. A chat template may have written ``<think>`` already, so a response may begin inside its
thought.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache

from r3l.core.text import split_thought, with_opening

_TAGS = ("<think>", "</think>", "<action>", "</action>")

ActionParser = Callable[[str], str | None]


def between(text: str, name: str, any_case: bool = False) -> Iterator[slice]:
    """Positions (slices) of the texts between ``<name>`` and the next ``</name>``, left to right.

    A second ``<name>`` before the end tag belongs to the text. A tag that is never closed is ignored.
    ``any_case``: tags in capitals count too.
    """
    start: int | None = None
    for tag in _tag(name, any_case).finditer(text):  # one pass: a pattern of pairs takes quadratic time
        opens = not tag[1]
        if opens and start is None:
            start = tag.end()
        elif not opens and start is not None:
            yield slice(start, tag.start())
            start = None


def first_between(text: str, name: str, any_case: bool = False) -> str | None:
    """The first text between ``<name>`` and ``</name>``; None if there is no such pair.

    ``any_case``: the tags may be in any case.
    """
    position = next(between(text, name, any_case), None)
    return None if position is None else text[position]


@cache
def _tag(name: str, any_case: bool) -> re.Pattern[str]:
    return re.compile(rf"<(/?){name}>", re.IGNORECASE if any_case else 0)


def each_tag_once(response: str) -> str | None:
    """The action of a response with exactly one thought, one action and no further tag; else None.

    Their order does not matter. The action may be empty.
    """
    found = split_thought(response)
    outside = f"{found.before}\n{found.after}"
    one_of_each = [outside.count(tag) for tag in _TAGS] == [0, 0, 1, 1]
    if found.after is None or found.thought is None or not one_of_each:
        return None
    return one_pair(response)


def one_pair(response: str) -> str | None:
    """The action of a response with exactly one thought and one action, in any order; else None.

    Unpaired tags are ignored. The action may be empty.
    """
    thoughts, actions = pairs(response)
    if thoughts != 1 or len(actions) != 1:
        return None
    return actions[0].strip()


def pairs(response: str) -> tuple[int, list[str]]:
    """The number of thoughts, and the texts of all action tags outside the first thought, blanks included.

    A response with ``</think>`` but without ``<think>`` begins inside its thought.
    """
    response = with_opening(response)
    thoughts = list(between(response, "think"))
    thought = thoughts[0] if thoughts else slice(0, 0)
    actions = []
    for outside in (response[: thought.start], response[thought.stop :]):
        actions += [outside[position] for position in between(outside, "action")]
    return len(thoughts), actions


def first_pair(response: str) -> str | None:
    """The text in the first action tags after the first thought; None without a thought or without these.

    Text before, between and after them is ignored. The action may be empty.
    """
    response = with_opening(response)
    thought = next(between(response, "think"), None)
    if thought is None:
        return None
    action = first_between(response[thought.stop :], "action")
    return None if action is None else action.strip()


def one_action(response: str) -> str | None:
    """The action of a response with exactly one action, not an empty one, outside its thought; else None.

    The thought may be missing.
    """
    found = split_thought(response)
    actions = []
    for outside in (found.before, found.after or ""):
        actions += [outside[position].strip() for position in between(outside, "action")]
    if len(actions) != 1:
        return None
    return actions[0] or None


def verl_agent_action(response: str, rest: int = 30) -> str:
    """The action as verl-agent reads it: the text from the first ``<action>`` to the first ``</action>``.

    It is in lower case, without blanks around it. If either tag is missing, the last ``rest`` characters of
    the response in lower case. Returns "" if ``</action>`` comes before ``<action>``.
    """
    text = response.lower()
    start = text.find("<action>")
    end = text.find("</action>")
    if start == -1 or end == -1:
        return text[-rest:]
    return text[start + len("<action>") : end].strip()


def trinity_action(response: str) -> str:
    """The action as Trinity-RFT reads it: the text between the first ``<action>`` and the next action tag.

    The next tag is ``<action>`` or ``</action>``; if neither follows, the action is all text after the first
    tag. Blanks around the action are removed. Returns "" for a response without ``<action>``.
    """
    _, _, after = response.partition("<action>")
    return after.partition("<action>")[0].partition("</action>")[0].strip()


def agentbench_action(label: re.Pattern[str]) -> ActionParser:
    """A parser that reads the action after a label, as AgentBench does; it gives None without the label.

    The action is group 1 of the first match of ``label``.
    """

    def parse(response: str) -> str | None:
        found = label.search(response)
        return found[1].strip() if found else None

    return parse


def agentgym_action(response: str) -> str:
    """The action as AgentGym reads it: everything after the last ``Action:``; "" without this label."""
    return response.rpartition("Action:")[2].strip() if "Action:" in response else ""


def not_empty(parser: ActionParser) -> ActionParser:
    """A parser like ``parser`` that returns None instead of an empty action."""
    return lambda response: parser(response) or None


_EXAMPLE = re.compile(r"^(?:> think: (.*)\nOK\.\n)?> (.*)\n", re.MULTILINE)


def example_turns(transcript: str) -> list[tuple[str, str, str]]:
    """Split a few-shot transcript into turns (observation before the action, thought or "", action).

    Its lines are observations, ``> think: WHY``, ``OK.`` and ``> ACTION``. A last observation is left out.
    """
    parts = _EXAMPLE.split(transcript)
    # Not strict: the observation after the last action belongs to no turn.
    turns = zip(parts[0::3], parts[1::3], parts[2::3], strict=False)
    return [(seen.strip(), thought or "", action) for seen, thought, action in turns]


def write_response(thought: str, action: str) -> str:
    """A response in the tagged format: ``<think>THOUGHT</think><action>ACTION</action>``."""
    return f"<think>{thought}</think><action>{action}</action>"


def action_in(response: str) -> str:
    """The text in the first action tags of a response, even inside a thought; "" without such tags.

    The feedback of the released code quotes it.
    """
    return (first_between(response, "action") or "").strip()
