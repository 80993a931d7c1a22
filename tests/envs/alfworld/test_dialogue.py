"""Prompts of both styles, the rule that reads responses, and the final feedback."""

from __future__ import annotations

from dataclasses import replace

from r3l.envs.alfworld import Alfworld
from r3l.envs.alfworld.dialogue import AlfworldDialogue
from r3l.envs.alfworld.houses import generate
from r3l.envs.alfworld.rooms import House

from r3l.core.environment import Observation, Transcript

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
    now = Observation("You arrive at desk 1.", ("go to bed 1", "go to drawer 2", "look", "take mug 1 from desk 1"))
    assert listing.following(FIRST, ["go to desk 1"], now).content == (
        "1: You arrive at desk 1. Places: bed 1, drawer 2."
    )
    assert listing.following(FIRST, ["look"], Observation("Done.")).content == "1: Done."
    assert listing.opening(TASK, FIRST) == COMPACT.opening(TASK, FIRST)  # the first text names them


def test_released_opening_has_a_system_prompt_and_everything_needed():
    system, user = AlfworldDialogue("full", max_turns=17).opening(TASK, FIRST)
    assert (system.role, user.role) == ("system", "user")
    assert "at most 17 steps" in system.content and "go to (receptacle)" in system.content
    assert "one object only" in system.content
    assert FIRST.text in user.content and "- go to desk 1\n- inventory\n- look" in user.content
    for part in ("<think>", "</think>", "<action>", "</action>"):
        assert part in user.content
    assert "$" not in system.content + user.content


def test_released_later_turns_show_the_task_and_the_last_four_actions():
    actions = [f"go to drawer {k}" for k in range(1, 7)]
    content = FULL.following(FIRST, actions, NOW).content
    assert "Your task is to: put some mug on desk." in content
    assert "taken 6 step(s)" in content and "at step 7" in content
    assert "go to drawer 2" not in content and "step 3: go to drawer 3" in content
    assert "step 6: go to drawer 6" in content
    assert NOW.text in content and "- take mug 1 from desk 1" in content
    one = FULL.following(FIRST, ["look"], NOW).content
    assert "The last 1: step 1: look." in one


def test_text_of_a_game_is_never_read_as_a_template():
    odd = Observation("Costs $5 ${x}. Your task is to: buy $y.", ("pay $5",))
    assert "Costs $5 ${x}." in FULL.opening(TASK, odd)[1].content
    assert "Your task is to: buy $y." in FULL.following(odd, ["pay $5"], odd).content


def test_the_dialogue_criticises_only_what_it_can_read():
    task = generate(House("pick_heat_then_place_in_recep", 3, 7, 8))
    dialogue = Alfworld().dialogue("compact", 15)
    first = Alfworld().create({}).reset(task).text
    ended = Transcript(task, first, (("fly", ""),), False, "inadmissible")
    assert dialogue.critique(ended).turn == 0
    crowd = replace(ended, task=replace(task, payload={"goal_text": "warm the cup up, please"}))
    assert dialogue.critique(crowd) is None
