"""Binary matrix by hand, and against distances by relaxation."""

from hypothesis import given, settings
from hypothesis import strategies as st
from puzzle_problems import generated
from r3l.envs.puzzles.engine.answer_engine import PUZZLES
from r3l.envs.puzzles.engine.base import CORRECT
from r3l.envs.puzzles.engine.binary_matrix import distances

KIND = PUZZLES["binary_matrix"]
BY_HAND = {"matrix": [[0, 1, 1], [1, 1, 1], [1, 1, 0]], "style": "released"}
GOLD = "0 1 2\n1 2 1\n2 1 0"


def test_answers_by_hand():
    for right in (GOLD, "0 1 2 / 1 2 1 / 2 1 0", "  0  1 2\r\n1 2 1\n2 1 0\n", "[[0,1,2],[1,2,1],[2,1,0]]"):
        assert KIND.verify(BY_HAND, right) and KIND.critique(BY_HAND, right) == CORRECT
    for wrong in (
        "0 1 2 1 2 1 2 1 0",  # no rows
        "0 1 2\n1 2 1",
        "0 1 2\n1 1 1\n2 1 0",
        "0 1 2\n1 2 1\n2 1 0\n0 0 0",
        "[[0,1,2],[1,2,1],[2,1,0.0]]",
        "[[false,true,2],[1,2,1],[2,1,0]]",
        "((0,1,2),(1,2,1),(2,1,0))",
        "٠ 1 2\n1 2 1\n2 1 0",  # an Arabic zero
        "",
    ):
        assert not KIND.verify(BY_HAND, wrong), wrong


def test_critiques_by_hand():
    assert KIND.critique(BY_HAND, "0 1 2\n1 1 1\n2 1 1") == "wrong at (row, column) (2, 2), (3, 3)"
    for shapeless in (
        "0 1 2 1 2 1 2 1 0",
        "0 1 2\n1 2 1",
        "[[0,1,2],[1,2,1],[2,1]]",
        "[]",
        "[1]",
        "zero",
        "",
    ):
        assert KIND.critique(BY_HAND, shapeless) == "the answer must have 3 rows of 3 numbers"


def test_the_worked_solution_goes_row_by_row():
    assert KIND.steps({**BY_HAND, "style": "compact"}) == [
        "row 1: 0 1 1 gives 0 1 2",
        "row 2: 1 1 1 gives 1 2 1",
        "row 3: 1 1 0 gives 2 1 0",
        "0 1 2 / 1 2 1 / 2 1 0",
    ]


def relaxed(matrix):
    """Distances by repeated relaxation of neighbours."""
    n = len(matrix)
    steps = [[0 if cell == 0 else 2 * n for cell in row] for row in matrix]
    for _ in range(2 * n):
        for r in range(n):
            for c in range(n):
                beside = [(r - 1, c), (r + 1, c), (r, c - 1), (r, c + 1)]
                near = [steps[x][y] + 1 for x, y in beside if 0 <= x < n and 0 <= y < n]
                steps[r][c] = min([steps[r][c], *near])
    return steps


@settings(max_examples=100)
@given(st.integers(0, 10**6), st.sampled_from(["nano", "rltf"]), st.integers(0, 24), st.integers(0, 6))
def test_a_changed_cell_is_graded_and_found(index, size, place, value):
    problem = generated("binary_matrix", size, index)
    gold = relaxed(problem.data["matrix"])
    assert distances(problem.data["matrix"]) == gold and KIND.verify(problem.data, problem.answer)
    r, c = divmod(place % len(gold) ** 2, len(gold))
    changed = [list(row) for row in gold]
    changed[r][c] = value
    answer = "\n".join(" ".join(map(str, row)) for row in changed)
    assert (
        KIND.verify(problem.data, answer) == KIND.verify_released(problem.data, answer) == (changed == gold)
    )
    critique = f"wrong at (row, column) ({r + 1}, {c + 1})" if changed != gold else CORRECT
    assert KIND.critique(problem.data, answer) == critique
