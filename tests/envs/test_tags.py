"""The linear readers of responses against the regular expressions that say what they read, on short texts."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st
from r3l.envs.base.answers import boxed
from r3l.envs.base.tagged import action_in, between, first_between, first_pair, one_pair
from r3l.envs.webshop.engine import read_action

TAGS = ("<think>", "</think>", "<action>", "</action>", "<Answer>", "</answer>")
TAGGED = st.lists(st.sampled_from([*TAGS, "<", ">", "/", " ", "\n", "a"])).map("".join)
BOXES = st.lists(st.sampled_from(["\\boxed{", "\\fbox {", "\\", "{", "}", "\\{", "\\}", "a", "\n"])).map("".join)
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
    actions = re.findall(r"<action>(.*?)</action>", text, re.DOTALL)
    alone = len(actions) == len(re.findall(r"<think>.*?</think>", text, re.DOTALL)) == 1
    assert one_pair(text) == (actions[0].strip() if alone else None)
    first = re.search(r"<think>.*?</think>.*?<action>(.*?)</action>", text, re.DOTALL)
    assert first_pair(text) == (first[1].strip() if first else None)
    named = re.search(r"<action>\s*(.*?)\s*</action>", text, re.DOTALL)
    assert action_in(text) == (named[1] if named else "")


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
            if text[end - 1] != "\\":
                depth += {"{": 1, "}": -1}.get(text[end], 0)
            if depth == 0:
                return text[start:end]
        return None

    contents = [content(box.end()) for box in re.finditer(r"\\(?:boxed|fbox)\s*\{", text)]
    assert boxed(text) == next((found for found in reversed(contents) if found is not None), None)
