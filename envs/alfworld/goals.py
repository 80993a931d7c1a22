"""Goals parsed from task sentences: the twelve sentences of alfworld's goal library."""

from __future__ import annotations

import re
from dataclasses import dataclass

from r3l.core.errors import DataError

FAMILIES = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)
SIMPLE, LOOK, CLEAN, HEAT, COOL, TWO = FAMILIES
STATES = {CLEAN: "clean", HEAT: "hot", COOL: "cool"}

# Both templates of each family as one pattern; a test compares them with alfworld.gen.goal_library.
_SENTENCES = {
    SIMPLE: r"put (?:a|some) (?P<object>\w+) (?:in|on) (?P<destination>\w+)",
    LOOK: r"(?:look at|examine the) (?P<object>\w+) (?:under|with) the (?P<lamp>\w+)",
    CLEAN: r"(?:put a clean|clean some) (?P<object>\w+) (?:in|and put it in) (?P<destination>\w+)",
    HEAT: r"(?:put a hot|heat some) (?P<object>\w+) (?:in|and put it in) (?P<destination>\w+)",
    COOL: r"(?:put a cool|cool some) (?P<object>\w+) (?:in|and put it in) (?P<destination>\w+)",
    TWO: r"(?:put|find) two (?P<object>\w+) (?:in|and put them in) (?P<destination>\w+)",
}
_PATTERNS = {family: re.compile(sentence) for family, sentence in _SENTENCES.items()}


@dataclass(frozen=True)
class HouseGoal:
    """Requirements of a task. Object classes are as displayed (``mug``, ``sinkbasin``).

    ``family``: the task type. ``object``, ``count``: class and number of the objects. ``state``: None,
    ``clean``, ``hot`` or ``cool``. Exactly one of ``destination`` (receptacle class to put it in) and
    ``lamp`` (class of the lamp to look at it under) is set.
    """

    family: str
    object: str
    count: int = 1
    state: str | None = None
    destination: str | None = None
    lamp: str | None = None


def parse_goal(goal_text: str) -> HouseGoal:
    """Parse a task sentence (a final full stop is ignored). Raises DataError for any other sentence."""
    sentence = goal_text.strip().rstrip(".").strip()
    for family, pattern in _PATTERNS.items():
        match = pattern.fullmatch(sentence)
        if match:
            words = match.groupdict()
            return HouseGoal(
                family,
                words["object"],
                2 if family == TWO else 1,
                STATES.get(family),
                words.get("destination"),
                words.get("lamp"),
            )
    raise DataError(
        f"{goal_text!r} is not one of ALFWorld's task sentences (alfworld.gen.goal_library); "
        "crowd-sourced wordings are not supported."
    )
