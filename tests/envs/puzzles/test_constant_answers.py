"""Constant answers: scores counted by hand."""

import pytest
from r3l.envs.base.package import ConstantAnswer
from r3l.envs.base.task_sets import committed
from r3l.envs.puzzles.engine import PUZZLES
from r3l.envs.puzzles.tasks import TASK_SETS, best_constant_answer, constant_answers

from r3l.core.task import Task


def path_task(grid):
    payload = {"puzzle": "shortest_path", "data": {"grid": grid, "style": "compact"}}
    return Task(str(grid), "puzzles", "test", "feasible" if "X" not in grid[0] else "infeasible", payload)


def test_shares_are_counted_over_all_and_by_group():
    # Two closed grids, one whose goal is to the right, one whose goal is two to the right.
    tasks = [path_task([row]) for row in ("*X#", "#X*", "*#O", "*O#")]
    success = constant_answers(tasks)
    assert best_constant_answer(tasks).answer == "infeasible"
    assert success["infeasible"] == {"all": 0.5, "feasible": 0.0, "infeasible": 1.0}
    assert success["right"] == {"all": 0.25, "feasible": 0.5, "infeasible": 0.0}
    assert success["left"] == {"all": 0.0, "feasible": 0.0, "infeasible": 0.0}


def test_copying_the_matrix_is_right_where_every_one_is_beside_a_zero():
    def beside(matrix, r, c):
        near = [(r - 1, c), (r + 1, c), (r, c - 1), (r, c + 1)]
        return any(matrix[x][y] == 0 for x, y in near if 0 <= x < len(matrix) and 0 <= y < len(matrix))

    tasks = TASK_SETS.tasks("binary_matrix_nano/test")
    matrices = [task.payload["data"]["matrix"] for task in tasks]
    count = sum(all(m[r][c] == 0 or beside(m, r, c) for r in range(len(m)) for c in range(len(m))) for m in matrices)
    success = constant_answers(tasks)
    assert success["copy"]["all"] == count / 200 == 0.07
    assert success["all 1"]["all"] == 0


def test_adding_all_numbers_is_right_where_the_target_is_their_sum():
    tasks = TASK_SETS.tasks("countdown_nano/test")
    count = sum(sum(task.payload["data"]["numbers"]) == task.payload["data"]["target"] for task in tasks)
    assert constant_answers(tasks)["sum"]["all"] == count / 200 == 0.295


@pytest.mark.parametrize("name", PUZZLES)
def test_the_committed_file_has_the_best_constant_answer(name):
    stored = committed("puzzles", f"{name}_nano")["splits"]["test"]["constant_answer"]
    assert ConstantAnswer(**stored) == best_constant_answer(TASK_SETS.tasks(f"{name}_nano/test"))
