"""Shortest path by hand, and against distances by relaxation."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from puzzle_problems import generated
from r3l.envs.puzzles.engine.answer_engine import PUZZLES
from r3l.envs.puzzles.engine.base import CORRECT
from r3l.envs.puzzles.engine.shortest_path import MOVES, search

KIND = PUZZLES["shortest_path"]
# * O O     the goal is two rows down: the blocked cell below the start costs two more moves
# X O X
# # O O
OPEN = {"grid": ["*OO", "XOX", "#OO"], "style": "compact"}
CLOSED = {"grid": ["*XO", "XOO", "#OO"], "style": "compact"}


def test_answers_by_hand():
    for right in ("right down down left", " Right, down,down  LEFT ", "right\ndown\ndown\nleft"):
        assert KIND.verify(OPEN, right) and KIND.critique(OPEN, right) == CORRECT
    assert KIND.verify(CLOSED, "infeasible") and KIND.critique(CLOSED, "Infeasible ") == CORRECT
    for wrong in (
        "infeasible",
        "down down",
        "right down down",
        "right right left down down left",
        "r d d l",
        "",
    ):
        assert not KIND.verify(OPEN, wrong), wrong
    for wrong in ("down down", "I do not know", "", "infeasible infeasible", "right"):
        assert not KIND.verify(CLOSED, wrong), wrong


def test_a_grid_without_start_or_goal_is_an_error():
    for grid, mark in (["OO", "O#"], "*"), (["*O", "OO"], "#"):
        with pytest.raises(
            ValueError, match=re.escape(f"there is no {mark!r} in the grid {' / '.join(grid)}")
        ):
            search(grid)


def test_critiques_by_hand():
    critiques = {
        "down down": "move 1 runs into a blocked cell",
        "right up": "move 2 leaves the grid",
        "right down": "the path ends in row 2, column 2, not at the goal",
        "right right left down down left": "the path arrives but is 2 steps too long",
        "infeasible": "there is a path",
        "go right": "the answer is not a list of moves",
        "": "the answer is not a list of moves",
    }
    assert {answer: KIND.critique(OPEN, answer) for answer in critiques} == critiques
    assert KIND.critique(CLOSED, "right down") == "move 1 runs into a blocked cell"


def test_the_worked_solution_goes_breadth_first_and_back():
    assert KIND.steps(OPEN) == [
        "start 1 1 goal 3 1",
        "step 1: 1 2 right",
        "step 2: 1 3 right, 2 2 down",
        "step 3: 3 2 down",
        "step 4: 3 3 right, 3 1 left",
        "back: left down down right",
        "right down down left",
    ]
    assert KIND.steps(CLOSED) == ["start 1 1 goal 3 1", "step 1: none", "goal not reached", "infeasible"]


def moves_needed(grid):
    """Moves from the start to the goal by repeated relaxation, or None."""
    far = 10**6
    cells = {(r, c): mark for r, row in enumerate(grid) for c, mark in enumerate(row) if mark != "X"}
    steps = {cell: 0 if mark == "*" else far for cell, mark in cells.items()}
    for _ in cells:
        for r, c in cells:
            beside = [(r - 1, c), (r + 1, c), (r, c - 1), (r, c + 1)]
            steps[r, c] = min(steps[r, c], *(steps.get(cell, far) + 1 for cell in beside))
    needed = next(steps[cell] for cell, mark in cells.items() if mark == "#")
    return needed if needed < far else None


def arrives(grid, moves):
    cells = {(r, c): mark for r, row in enumerate(grid) for c, mark in enumerate(row) if mark != "X"}
    r, c = next(cell for cell, mark in cells.items() if mark == "*")
    for move in moves:
        r, c = r + MOVES[move][0], c + MOVES[move][1]
        if (r, c) not in cells:
            return False
    return cells[r, c] == "#"


@settings(max_examples=150)
@given(st.integers(0, 10**6), st.sampled_from(["nano", "rltf"]), st.data())
def test_a_changed_path_is_graded_as_by_relaxation(index, size, data):
    problem = generated("shortest_path", size, index)
    grid, needed = problem.data["grid"], moves_needed(problem.data["grid"])
    assert (problem.group == "infeasible") == (needed is None) and KIND.verify(problem.data, problem.answer)
    moves = [move for move in problem.answer.split() if move in MOVES]
    place = data.draw(st.integers(0, len(moves)))
    changed = [*moves[:place], *data.draw(st.lists(st.sampled_from(list(MOVES)), max_size=3))]
    changed += moves[place + data.draw(st.integers(0, 2)) :]
    if changed:
        right = needed is not None and len(changed) == needed and arrives(grid, changed)
        assert KIND.verify(problem.data, " ".join(changed)) == right
        assert KIND.verify_released(problem.data, ",".join(changed)) == right
        assert (KIND.critique(problem.data, " ".join(changed)) == CORRECT) == right
    assert KIND.verify(problem.data, "infeasible") == (needed is None)
