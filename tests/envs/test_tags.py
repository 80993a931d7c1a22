"""The linear parsers of responses compared with the regular expressions that define them, on short texts."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from r3l.envs.base.action_parsers import (
    action_in,
    between,
    each_tag_once,
    first_between,
    first_pair,
    one_pair,
)
from r3l.envs.base.answers import boxed
from r3l.envs.base.tagged import TaggedDialogue
from r3l.envs.registry import find_environment
from r3l.envs.webshop.engine.shop import read_action

TAGS = ("<think>", "</think>", "<action>", "</action>", "<Answer>", "</answer>")
TAGGED = st.lists(st.sampled_from([*TAGS, "<", ">", "/", " ", "\n", "a"])).map("".join)
BOXES = st.lists(st.sampled_from(["\\boxed{", "\\fbox {", "\\", "{", "}", "\\{", "\\}", "a", "\n"])).map(
    "".join
)
ACTIONS = st.text("[]aB\n ", max_size=12)
many = settings(max_examples=500, derandomize=True)


@many
@given(TAGGED)
def test_what_stands_between_tags(text):
    actions = re.findall(r"<action>(.*?)</action>", text, re.DOTALL)
    answers = re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL | re.IGNORECASE)
    assert [text[where] for where in between(text, "action")] == actions
    assert [text[where] for where in between(text, "answer", any_case=True)] == answers
    assert first_between(text, "action") == next(iter(actions), None)


@many
@given(TAGGED)
def test_pairs_of_a_thought_and_an_action(text):
    named = re.search(r"<action>\s*(.*?)\s*</action>", text, re.DOTALL)
    assert action_in(text) == (named[1] if named else "")
    opened = "<think>" + text if "</think>" in text and "<think>" not in text else text
    thoughts = list(re.finditer(r"<think>.*?</think>", opened, re.DOTALL))
    outside = [opened[: thoughts[0].start()], opened[thoughts[0].end() :]] if thoughts else [opened]
    actions = [
        action for part in outside for action in re.findall(r"<action>(.*?)</action>", part, re.DOTALL)
    ]
    assert one_pair(text) == (actions[0].strip() if len(thoughts) == len(actions) == 1 else None)
    first = re.search(r"<think>.*?</think>.*?<action>(.*?)</action>", opened, re.DOTALL)
    assert first_pair(text) == (first[1].strip() if first else None)


READERS = (each_tag_once, one_pair, first_pair)


@pytest.mark.parametrize(
    "response",
    [
        "<think>It is closed.</think><action>open drawer 2</action>",
        "It is closed.</think><action>open drawer 2</action>",  # the chat template opened the thought
        "</think>\n\n<action>open drawer 2</action>",
        "I write <action>look</action>, or not.</think>\n<action> open drawer 2 </action>\n",
        "<think>First <action>, then </action>.</think><action>open drawer 2</action>",
        "<think>One <action> is asked for.</think> So: <action>open drawer 2</action>",
        "\n<think>\nIt is closed.\n</think>\n\n<action>open drawer 2</action>",
    ],
)
def test_what_follows_a_thought_is_the_response(response):
    assert [read(response) for read in READERS] == ["open drawer 2"] * 3


@pytest.mark.parametrize(
    "response",
    [
        "<think>I take <action>open drawer 2</action> and",
        "<think><action>open drawer 2</action></think>",
        "<action>open drawer 2</action></think>",
        "<action>open drawer 2</action>",
        "It is closed.</think>open drawer 2",
        "It is closed.</think><action>open drawer 2",
    ],
)
def test_a_thought_holds_no_action_and_a_response_needs_a_thought(response):
    assert [read(response) for read in READERS] == [None] * 3


@pytest.mark.parametrize("env", ["alfworld", "scienceworld", "webshop"])
def test_a_flexible_reading_asks_for_no_thought(env):
    read = find_environment(env).dialogue("full", 15, {"response_format": "flexible"}).read
    alone, thought = "<action> look </action>", "<think>No <action>go</action>.</think>"
    assert [read(text) for text in (alone, thought + alone, alone + thought, f"So.</think>{alone}")] == [
        "look"
    ] * 4
    assert [read(text) for text in (alone * 2, f"<think>{alone}", "<action></action>", "look")] == [None] * 4


def test_models_of_the_compact_style_write_both_tags():
    class Drawers(TaggedDialogue):
        label, action_parsers = "drawers", {"strict": each_tag_once}

    response = "It is closed.</think><action>open drawer 2</action>"
    assert (
        Drawers("full", 1).read(response) == "open drawer 2" and Drawers("compact", 1).read(response) is None
    )


@many
@given(ACTIONS)
def test_the_actions_of_webshop(text):
    match = re.match(r"(.+)\[(.+)\]", text)
    assert read_action(text) == ((match[1], match[2].lower()) if match else ("", ""))


@many
@given(BOXES)
def test_the_last_box_whose_braces_balance(text):
    def content(start):
        depth = 1
        for end in range(start, len(text)):
            backslashes = len(text[:end]) - len(text[:end].rstrip("\\"))
            if backslashes % 2 == 0:  # two of them are a line break
                depth += {"{": 1, "}": -1}.get(text[end], 0)
            if depth == 0:
                return text[start:end]
        return None

    contents = [content(box.end()) for box in re.finditer(r"\\(?:boxed|fbox)\s*\{", text)]
    assert boxed(text) == next((found for found in reversed(contents) if found is not None), None)
