"""Prompts of both styles, shortened observations, parsing of responses, and the final feedback."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from r3l.envs.base.action_parsers import write_response
from r3l.envs.scienceworld import ScienceWorldOptions
from r3l.envs.scienceworld.task_sets.tasks import problem
from r3l.envs.scienceworld.text.compact_text import LIMIT, compact
from r3l.envs.scienceworld.text.dialogue import ScienceWorldDialogue

from r3l.core.environment import Observation, Parsed, Transcript

TASK = problem("find-animal", 2, "test")
KITCHEN = (
    "This room is called the kitchen. In it, you see: \n\tthe agent\n\ta substance called air\n"
    "\ta blue box (containing nothing)\n\ta chair. On the chair is: nothing.\n"
    "\ta counter. On the counter is: a bowl (containing a red apple, an orange), a drawer.\n"
    "\ta fridge. The fridge door is closed. \n\ta glass jar (containing a substance called sodium chloride)\n"
    "\ta oven, which is turned off. The oven door is closed. \n\ta substance called soap\n"
    "\ta bed. On the bed is: a mattress. On the mattress is: a white pillow..\n"
    "\ta flower pot 2 (containing a pea plant in the adult stage with a tall height, soil)\n"
    "\ta thermometer, currently reading a temperature of 10 degrees celsius\n"
    "You also see:\n\tA door to the hallway (that is open)"
)
FIRST = Observation(f"Your task is to find a(n) animal.  First, focus on the thing.\n{KITCHEN}")
NOW = Observation("You move to the kitchen.")
FULL, COMPACT = ScienceWorldDialogue("full"), ScienceWorldDialogue("compact", 12)


def test_compact_keeps_the_names_and_their_order():
    assert compact(KITCHEN) == (
        "kitchen: blue box, chair, counter (bowl (red apple, orange), drawer), fridge, glass jar (sodium chloride), "
        "oven, soap, bed (mattress (white pillow)), flower pot 2 (pea plant, soil), thermometer"
    )
    assert (
        compact("In your inventory, you see:\n\ta dove egg\n\tan orange\n") == "you carry: dove egg, orange"
    )
    assert compact("In your inventory, you see:\n") == "you carry: nothing"
    assert compact("You move the\n dove to the inventory.") == "You move the dove to the inventory."


@given(st.text())
def test_compact_is_one_short_line(text):
    short = compact(text)
    assert len(short) <= LIMIT and "\n" not in short and short == compact(short)


def test_compact_is_a_numbered_transcript():
    (opening,) = COMPACT.opening(TASK, FIRST)
    assert opening.role == "user"
    assert opening.content.startswith(
        "0: Your task is to find a(n) animal. First, focus on the thing. kitchen: blue"
    )
    assert COMPACT.following(FIRST, ["look around"] * 7, NOW).content == "7: You move to the kitchen."


@pytest.mark.parametrize(
    "response, action, error",
    [
        (write_response("why", "go to kitchen"), "go to kitchen", None),
        (
            "<action> fly to the moon\n</action> then <think>a\nb</think>",
            "fly to the moon",
            None,
        ),  # sent all the same
        ("<action>look around</action>", None, "format"),
        ("<think>x</think><action>  </action>", None, "format"),
        ("<think>x</think><action>a</action><action>b</action>", None, "format"),
    ],
)
def test_parse(response, action, error):
    for dialogue in (FULL, COMPACT):
        assert dialogue.parse(response, NOW, []) == Parsed(action, error)


@pytest.mark.parametrize(
    "response, action",
    [
        ("<think>x</think><action> a\n</action><action>b</action>", "a"),  # the first one
        ("<think>x</think><think>y</think><action>a</action>", "a"),
        ("<action>a</action><think>x</think><action>b</action>", "b"),  # after a thought
        ("</think><action><think>x</think><action>a</action>", "a"),
        ("<think>x</think><action>a <action>b</action>", "a <action>b"),
        ("<think>x</think><action>  </action>", ""),
        ("<action>a</action><think>x</think>", None),
        ("<THINK>x</THINK><ACTION>a</ACTION>", None),
    ],
)
def test_released_reading(response, action):
    released = ScienceWorldDialogue("full", options=ScienceWorldOptions(response_format="released"))
    assert released.parse(response, NOW, []) == Parsed(action, None if action is not None else "format")


def test_the_third_identical_action_in_a_row_ends_the_episode():
    wait = write_response("", "wait")
    assert COMPACT.parse(wait, NOW, ["wait"]) == Parsed("wait")
    assert COMPACT.parse(wait, NOW, ["wait", "wait"]) == Parsed(None, "repetition")
    assert COMPACT.parse(wait, NOW, ["wait", "inventory", "wait"]) == Parsed("wait")


def test_a_critique_needs_a_solution():
    assert COMPACT.critique(Transcript(TASK, FIRST.text, (("wait", "You wait."),), False, None)) is None
