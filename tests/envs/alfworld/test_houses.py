"""Generated houses: deterministic, solvable in the real engine, and their sentences parse back."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from r3l.envs.alfworld.engine.text_engine import AlfworldEngine
from r3l.envs.alfworld.goals import FAMILIES, HouseGoal, parse_goal
from r3l.envs.alfworld.task_sets.houses import generate
from r3l.envs.alfworld.task_sets.rooms import House
from r3l.envs.alfworld.task_sets.tasks import TASK_SETS

from r3l.core.errors import DataError

SENTENCES = {
    "put a mug in desk": HouseGoal("pick_and_place_simple", "mug", destination="desk"),
    "put some mug on desk.": HouseGoal("pick_and_place_simple", "mug", destination="desk"),
    "look at book under the desklamp": HouseGoal("look_at_obj_in_light", "book", lamp="desklamp"),
    "examine the book with the desklamp": HouseGoal("look_at_obj_in_light", "book", lamp="desklamp"),
    "put a clean fork in drawer": HouseGoal("pick_clean_then_place_in_recep", "fork", 1, "clean", "drawer"),
    "clean some fork and put it in drawer": HouseGoal(
        "pick_clean_then_place_in_recep", "fork", 1, "clean", "drawer"
    ),
    "put a hot egg in shelf": HouseGoal("pick_heat_then_place_in_recep", "egg", 1, "hot", "shelf"),
    "heat some egg and put it in shelf": HouseGoal("pick_heat_then_place_in_recep", "egg", 1, "hot", "shelf"),
    "put a cool pan in stoveburner": HouseGoal(
        "pick_cool_then_place_in_recep", "pan", 1, "cool", "stoveburner"
    ),
    "cool some pan and put it in stoveburner": HouseGoal(
        "pick_cool_then_place_in_recep", "pan", 1, "cool", "stoveburner"
    ),
    "put two cd in safe": HouseGoal("pick_two_obj_and_place", "cd", 2, None, "safe"),
    "find two cd and put them in safe": HouseGoal("pick_two_obj_and_place", "cd", 2, None, "safe"),
}


@pytest.mark.parametrize(("sentence", "goal"), SENTENCES.items())
def test_all_twelve_sentences_are_read(sentence, goal):
    assert parse_goal(sentence) == goal


def test_the_sentences_are_those_of_alfworlds_goal_library():
    from alfworld.gen.goal_library import gdict

    written = [
        t.format(obj="mug", recep="shelf", toggle="desklamp") for f in FAMILIES for t in gdict[f]["templates"]
    ]
    assert [parse_goal(sentence).family for sentence in written] == [f for f in FAMILIES for _ in range(2)]


@pytest.mark.parametrize("sentence", ["", "put mug", "wash the dishes", "put a clean mug in desk now"])
def test_other_sentences_are_errors(sentence):
    with pytest.raises(DataError, match="not one of ALFWorld's task sentences"):
        parse_goal(sentence)


@pytest.fixture(scope="module")
def engine():
    engine = AlfworldEngine()
    yield engine
    engine.close()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("receptacles", "objects"), [(4, 4), (9, 8)])
def test_every_family_is_proved_by_playing(engine, family, receptacles, objects):
    task = generate(House(family, 0, receptacles, objects))
    first = engine.reset(task)
    assert not first.success
    assert len([a for a in first.admissible if a.startswith("go to ")]) == receptacles
    TASK_SETS.validate(task)
    assert parse_goal(task.payload["goal_text"]).family == family


def test_a_walkthrough_that_does_not_win_is_refused():
    task = generate(House("pick_and_place_simple", 0))
    short = type(task)(**{**task.__dict__, "payload": {**task.payload, "walkthrough": ["look"]}})
    with pytest.raises(DataError, match=task.id):
        TASK_SETS.validate(short)


@settings(max_examples=30)
@given(st.sampled_from(FAMILIES), st.integers(0, 10**9), st.integers(4, 12), st.integers(3, 12))
def test_any_seed_gives_a_house_of_the_asked_size(family, seed, receptacles, objects):
    task = generate(House(family, seed, receptacles, objects))
    assert task.id == House(family, seed, receptacles, objects).id
    assert (
        task.payload["pddl_problem"].count("(receptacleAtLocation ")
        - ("?r ?l" in task.payload["pddl_problem"])
        == receptacles
    )
    assert task.payload["walkthrough"]
