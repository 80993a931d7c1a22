"""Constant answers: scores counted by hand."""

import pytest
from r3l.envs.base.package import ConstantAnswer
from r3l.envs.base.task_sets import committed
from r3l.envs.puzzles.engine.answer_engine import PUZZLES
from r3l.envs.puzzles.task_sets.tasks import TASK_SETS, best_constant_answer, constant_answers

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


@pytest.mark.parametrize("name", PUZZLES)
def test_the_committed_file_has_the_best_constant_answer(name):
    stored = committed("puzzles", f"{name}_nano")["splits"]["test"]["constant_answer"]
    assert ConstantAnswer(**stored) == best_constant_answer(TASK_SETS.tasks(f"{name}_nano/test"))
