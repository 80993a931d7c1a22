"""Knights & Knaves by hand, and against a brute force of reasoning-gym's own."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from puzzle_problems import generated
from r3l.envs.puzzles.engine.answer_engine import PUZZLES
from r3l.envs.puzzles.engine.base import CORRECT
from r3l.envs.puzzles.engine.knights_knaves import holds, render, solve

KIND = PUZZLES["knights_knaves"]
# Zoey: "Riley is a sinner." Riley: "Zoey is a saint and I am a saint." If Zoey lies, Riley is a saint, so
# Zoey is one: no. So Zoey is a saint and Riley a sinner, whose statement is false.
BY_HAND = {
    "names": ["Zoey", "Riley"],
    "roles": ["saint", "sinner"],
    "style": "released",
    "statements": [["lying", 1], ["and", ["telling-truth", 0], ["telling-truth", 1]]],
}


def test_answers_by_hand():
    assert solve(BY_HAND) == (True, False)
    with pytest.raises(ValueError, match="no roles fit the statements"):  # "I lie."
        solve(BY_HAND | {"names": ["Zoey"], "statements": [["lying", 0]]})
    assert render(BY_HAND, (True, False)) == "Zoey is a saint, and Riley is a sinner."
    for right in (
        "Zoey is a saint, and Riley is a sinner.",
        "Riley is a sinner and Zoey is a saint",
        " Zoey saint;\n Riley  sinner ",
    ):
        assert KIND.verify(BY_HAND, right) and KIND.critique(BY_HAND, right) == CORRECT
    for wrong in (
        "Zoey is a saint",  # not everybody
        "Zoey is a saint, Riley is a saint",
        "Zoey is a saint, Riley is a sinner, Riley is a saint",  # both ways
        "Zoey is a saint, Riley is a sinner, Adam is a saint",  # not a person of the puzzle
        "Zoey is a knight, Riley is a knave",  # other words
        "Zoey is not a sinner, Riley is a sinner",
        "",
    ):
        assert not KIND.verify(BY_HAND, wrong), wrong


def test_the_writer_chooses_case_layout_and_what_stands_between_people():
    for right in (
        "Zoey is a Saint, and Riley is a Sinner.",
        "- Zoey is a saint\n- Riley is a sinner",
        "Zoey is a saint. Riley is a sinner.",
        "Zoey is a saint & Riley is a sinner",
        "**Zoey** is a **saint**, and **Riley** is a **sinner**.",
        "1. ZOEY IS A SAINT\n2. RILEY IS A SINNER",
        "(1) Zoey is a saint, (2) Riley is a sinner",
        "(1) Zoey: saint (2) Riley: sinner",
        "The answer is: 1. Zoey is a saint. 2. Riley is a sinner.",
        "**(1)** Zoey is a saint\n**(2)** Riley is a sinner",
        "[1] Zoey is a saint; [2] Riley is a sinner",
        "(b) Riley is a sinner and (a) Zoey is a saint",
        "(Riley = sinner; Zoey = the saint)",
        "Zoey (saint) \\& Riley (sinner)",
        "\\text{Zoey is a saint, and Riley is a sinner.}",
        "\\text{Zoey is a saint} \\\\ \\text{Riley is a sinner}",
        "Therefore, Zoey is a saint, and Riley is a sinner.",
        "So the final answer is: **Zoey is a saint**, Riley is a sinner",
    ):
        assert KIND.verify(BY_HAND, right) and KIND.critique(BY_HAND, right) == CORRECT, right
    for wrong in (
        "Zoey is a Sinner, Riley is a Saint",
        "- Zoey is not a saint\n- Riley is a sinner",
        "Zoey is a saint. Zoey is a saint. Riley is a sinner.",
        "**Zoey** and **Riley** are **saints**",
        "(1) Zoey is a saint",
        "(1) Zoey is a saint (2) Zoey is a saint (3) Riley is a sinner",
        "(1) Zoey is a saint or (2) Riley is a sinner",
        "Zoey is a saint (or a sinner), Riley is a sinner",
    ):
        assert not KIND.verify(BY_HAND, wrong), wrong


def test_critiques_by_hand():
    unread = "the answer must give each of Zoey, Riley one role: saint or sinner"
    assert KIND.critique(BY_HAND, "Zoey is a saint") == unread
    # Both saints: Zoey would say something false; Riley's statement is then true, as it should be.
    both = "with these roles the statement of Zoey is false, which no saint says"
    assert KIND.critique(BY_HAND, "Zoey is a saint, Riley is a saint") == both
    # Both sinners: Zoey's statement is true. Riley's is false, as it should be.
    neither = "with these roles the statement of Zoey is true, which no sinner says"
    assert KIND.critique(BY_HAND, "Zoey is a sinner, Riley is a sinner") == neither


def test_every_connective_by_its_truth_table():
    a, b = ["telling-truth", 0], ["telling-truth", 1]
    table = {
        "and": [True, False, False, False],
        "or": [True, True, True, False],
        "->": [True, False, True, True],
        "<=>": [True, False, False, True],
    }
    for connective, values in table.items():
        truth = [holds([connective, a, b], roles) for roles in itertools.product([True, False], repeat=2)]
        assert truth == values
    assert holds(["not", ["lying", 0]], [True]) and not holds(["lying", 0], [True])


def test_the_worked_solution_tries_one_assignment_after_another():
    assert KIND.steps({**BY_HAND, "names": ["A", "B"], "roles": ["knight", "knave"], "style": "compact"}) == [
        "A knight B knight: no",
        "A knight B knave: yes yes",
        "A knight, B knave",
    ]


def test_who_has_the_habit_takes_every_connective_for_another_one():
    # Riley's "and" is read as "or". Both saints: Zoey's statement would be false. Zoey alone: Riley's is
    # true, though a sinner says it. Riley alone: Zoey's is false, Riley's true, as they should be, and that
    # is wrong.
    compact = {**BY_HAND, "names": ["A", "B"], "roles": ["knight", "knave"], "style": "compact"}
    assert KIND.steps(KIND.by_habit(compact)) == [
        "A knight B knight: no",
        "A knight B knave: yes no",
        "A knave B knight: yes yes",
        "A knave, B knight",
    ]
    a, b = ["telling-truth", 0], ["lying", 1]
    nested = {"statements": [["or", ["not", a], ["<=>", a, b]], ["->", a, b], b]}
    assert KIND.by_habit(nested)["statements"] == [["and", ["not", a], ["or", a, b]], ["and", a, b], b]


@settings(max_examples=60)
@given(st.integers(0, 2000), st.sampled_from(["nano", "rltf"]))
def test_exactly_the_brute_forced_solution_verifies(index, size):
    from reasoning_gym.logic.knights_knaves import KnightsKnavesDataset

    problem = generated("knights_knaves", size, index)
    solutions = KnightsKnavesDataset.find_solution(problem.data["statements"])
    assert len(solutions) == 1
    for roles in itertools.product([True, False], repeat=len(problem.data["names"])):
        answer = render(problem.data, roles)
        assert (
            KIND.verify(problem.data, answer)
            == KIND.verify_released(problem.data, answer)
            == (roles == solutions[0])
        )
        assert (KIND.critique(problem.data, answer) == CORRECT) == (roles == solutions[0])
    assert KIND.verify(problem.data, problem.answer)
