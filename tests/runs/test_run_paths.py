"""Which run an evaluation belongs to, wherever the run lies and whatever its task sets are called."""

from pathlib import Path

import pytest

from r3l.runs.run_paths import evaluation_folder, find_further, first_found, run_dir_of, runs_of


@pytest.mark.parametrize(
    "run_dir", [Path("run"), Path("/run"), Path("results/nano/math/m/grpo/seed0")], ids=str
)
@pytest.mark.parametrize("task_set", ["test", "validation", "nano/validation"])
def test_the_run_of_an_evaluation_is_found(run_dir, task_set):
    assert run_dir_of(evaluation_folder(run_dir, task_set, "test") / "evaluation.json") == run_dir


def test_every_further_task_set_is_found(tmp_path):
    paths = [
        evaluation_folder(tmp_path, name, "test") / "evaluation.json"
        for name in ("nano/validation", "validation")
    ]
    for path in paths:
        path.parent.mkdir(parents=True)
        path.write_text("{}")
    assert find_further(tmp_path) == paths


def test_a_methods_runs_come_from_the_first_folder_that_has_any(tmp_path):
    runs = {
        "stored": ["nano/math/m/grpo/seed0", "nano/math/m/raft/seed0"],
        "own": [
            "nano/math/n/grpo/seed7",
            "nano/webshop/m/grpo/seed0",
            "smol/math/m/grpo/seed0",
            "nano/math/m/dapo/seed0",
        ],
    }
    for folder, run_dirs in runs.items():
        for run_dir in run_dirs:
            (tmp_path / folder / run_dir).mkdir(parents=True)
            (tmp_path / folder / run_dir / "evaluation.json").touch()
    found = [runs_of(tmp_path / folder, ["grpo", "raft"]) for folder in runs]
    chosen = [str(path.parent.relative_to(tmp_path)) for path in first_found(found)]
    assert chosen == [
        "stored/nano/math/m/grpo/seed0",
        "stored/nano/math/m/raft/seed0",
        "own/nano/webshop/m/grpo/seed0",
        "own/smol/math/m/grpo/seed0",
    ]
    assert len(runs_of(tmp_path / "own", ["grpo"], tier="nano", envs=["math"])) == 1
    assert runs_of(tmp_path / "none", ["grpo"], may_be_none=True) == []
