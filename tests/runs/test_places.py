"""Which run an evaluation belongs to, wherever the run lies and whatever its task sets are called."""

from pathlib import Path

import pytest

from r3l.runs.places import evaluation_folder, find_further, run_dir_of


@pytest.mark.parametrize("run_dir", [Path("run"), Path("/run"), Path("results/nano/math/m/grpo/seed0")], ids=str)
@pytest.mark.parametrize("task_set", ["test", "validation", "nano/validation"])
def test_the_run_of_an_evaluation_is_found(run_dir, task_set):
    assert run_dir_of(evaluation_folder(run_dir, task_set, "test") / "evaluation.json") == run_dir


def test_every_further_task_set_is_found(tmp_path):
    paths = [
        evaluation_folder(tmp_path, name, "test") / "evaluation.json" for name in ("nano/validation", "validation")
    ]
    for path in paths:
        path.parent.mkdir(parents=True)
        path.write_text("{}")
    assert find_further(tmp_path) == paths
