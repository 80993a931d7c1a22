"""Prompts of both styles, parsing of responses, and the final feedback."""

from __future__ import annotations

from dataclasses import replace

import pytest
from r3l.envs.alfworld import Alfworld
from r3l.envs.alfworld.options import AlfworldOptions
from r3l.envs.alfworld.task_sets.houses import generate
from r3l.envs.alfworld.task_sets.rooms import House
from r3l.envs.alfworld.text.dialogue import AlfworldDialogue

from r3l.core.environment import Observation, Parsed, Transcript

FIRST = Observation(
    "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. You see a desk 1.\n\n"
    "Your task is to: put some mug on desk.",
    ("go to desk 1", "inventory", "look"),
)
NOW = Observation("You arrive at desk 1. On the desk 1, you see a mug 1.", ("look", "take mug 1 from desk 1"))
TASK = generate(House("pick_and_place_simple", seed=0))
FULL, COMPACT = AlfworldDialogue("full"), AlfworldDialogue("compact")


def tagged(action):
    return f"<think>why</think>\n<action>{action}</action>"


def test_compact_is_a_numbered_transcript():
    (opening,) = COMPACT.opening(TASK, FIRST)
    assert opening.role == "user"
    assert opening.content == (
        "0: You are in the middle of a room. You see a desk 1. Your task is to: put some mug on desk."
    )
    now = Observation("You see\n\n  nothing. ")
    assert COMPACT.following(FIRST, ["look"] * 7, now).content == "7: You see nothing."


def test_compact_prompts_can_end_with_the_places_to_go_to():
    listing = Alfworld().dialogue("compact", 15, {"list_places": True})
    now = Observation(
        "You arrive at desk 1.", ("go to bed 1", "go to drawer 2", "look", "take mug 1 from desk 1")
    )
    assert listing.following(FIRST, ["go to desk 1"], now).content == (
        "1: You arrive at desk 1. Places: bed 1, drawer 2."
    )
    assert listing.following(FIRST, ["look"], Observation("Done.")).content == "1: Done."
    assert listing.opening(TASK, FIRST) == COMPACT.opening(TASK, FIRST)  # the first text names them


@pytest.mark.parametrize("dialogue", [FULL, COMPACT], ids=["full", "compact"])
@pytest.mark.parametrize(
    "response, error",
    [
        (tagged("look"), None),
        ("<action>look</action> then <think>a\nb</think>", None),  # the order is free
        ("<action>look</action>", "format"),
        (tagged("look") + "<action>look</action>", "format"),
        (tagged("Look"), "inadmissible"),
        (tagged(""), "inadmissible"),
        (tagged("take mug 2 from desk 1"), "inadmissible"),
    ],
)
def test_reading_responses(dialogue, response, error):
    parsed = dialogue.parse(response, NOW, [])
    assert parsed == (Parsed("look") if error is None else Parsed(None, error))


@pytest.mark.parametrize(
    "response, error",
    [
        (tagged("look") + "<action>", None),  # a lone tag does not count
        ("</think>" + tagged("look"), None),
        (
            "<think>x</think><action>look <action>look</action>",
            "inadmissible",
        ),  # the pair holds "look <action>look"
        (tagged("look") + "<think>again</think>", "format"),
        (tagged(""), "inadmissible"),
    ],
)
def test_released_reading(response, error):
    parsed = AlfworldDialogue("full", options=AlfworldOptions(response_format="released")).parse(
        response, NOW, []
    )
    assert parsed == (Parsed("look") if error is None else Parsed(None, error))


def test_the_third_identical_action_in_a_row_ends_the_episode():
    assert FULL.parse(tagged("look"), NOW, ["look"]) == Parsed("look")
    assert FULL.parse(tagged("look"), NOW, ["look", "look", "go to desk 1"]) == Parsed("look")
    assert FULL.parse(tagged("look"), NOW, ["look", "go to desk 1", "look"]) == Parsed("look")
    assert FULL.parse(tagged("look"), NOW, ["go to desk 1", "look", "look"]) == Parsed(None, "repetition")


def test_the_dialogue_criticises_only_what_it_can_read():
    task = generate(House("pick_heat_then_place_in_recep", 3, 7, 8))
    dialogue = Alfworld().dialogue("compact", 15)
    first = Alfworld().create({}).reset(task).text
    ended = Transcript(task, first, (("fly", ""),), False, "inadmissible")
    assert dialogue.critique(ended).turn == 0
    crowd = replace(ended, task=replace(task, payload={"goal_text": "warm the cup up, please"}))
    assert dialogue.critique(crowd) is None
