"""Which run an evaluation belongs to, wherever the run lies and whatever its task sets are called."""

from pathlib import Path

import pytest

from r3l.core.errors import DataError
from r3l.runs.run_paths import (
    cell_of,
    each_run,
    evaluation_folder,
    find_further,
    find_runs,
    first_found,
    run_dir_of,
    runs_of,
)


@pytest.mark.parametrize(
    "run_dir",
    [
        "run",
        "results/nano/math/m/grpo/seed0",
        *("evaluations", "evaluations/seed0", "evaluations/grpo/seed0", "evaluations/m/grpo/seed0"),
    ],
)
@pytest.mark.parametrize("task_set", ["test", "validation", "nano/validation", "chain/test/hard"])
@pytest.mark.parametrize("absolute", [True, False])
def test_the_run_of_an_evaluation_is_found(tmp_path, monkeypatch, run_dir, task_set, absolute):
    """Also if the folder of the results has the name of the folder inside a run."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / run_dir if absolute else Path(run_dir)
    folder.mkdir(parents=True)
    (folder / "manifest.json").touch()
    run_dir_of.cache_clear()
    assert run_dir_of(evaluation_folder(folder, task_set, "test") / "evaluation.json") == folder


@pytest.mark.parametrize("below", ["", "math/m/grpo"])
def test_runs_in_a_folder_named_evaluations_are_found(tmp_path, below):
    run = tmp_path / "evaluations" / below / "seed0" / "evaluation.json"
    further = run.parent / "evaluations" / "gsm8k" / "seed1" / "evaluation.json"
    for path in (run, further):
        path.parent.mkdir(parents=True)
        path.write_text("{}")
    (run.parent / "manifest.json").touch()
    assert find_runs(tmp_path / "evaluations") == find_runs(tmp_path) == [run]


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


def test_runs_are_found_in_a_folder_of_one_tier_environment_model_or_method(tmp_path, monkeypatch):
    run = tmp_path / "nano" / "math" / "m" / "grpo" / "seed3" / "evaluation.json"
    further = run.parent / "evaluations" / "gsm8k" / "seed1" / "evaluation.json"  # a task set of that name
    for path in (run, further):
        path.parent.mkdir(parents=True)
        path.write_text("{}")
    (run.parent / "manifest.json").touch()
    for folder in (tmp_path, *list(run.parents)[1:5]):
        assert find_runs(folder) == [run]
    monkeypatch.chdir(run.parents[2])
    assert [cell_of(path).tier for path in find_runs(Path("grpo"))] == ["nano"]
    with pytest.raises(DataError, match="no (evaluation.json|run) under"):
        find_runs(tmp_path / "smol")


def test_evaluations_in_folders_of_other_names_are_named(tmp_path):
    for name in ("mine", "deep/er"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "evaluation.json").write_text("{}")
    with pytest.raises(DataError) as raised:
        find_runs(tmp_path)
    assert f"({tmp_path}/deep/er, {tmp_path}/mine): name these" in str(raised.value)
    assert find_runs(tmp_path, may_be_none=True) == []


def test_each_run_counts_once_from_the_first_folder_that_has_it():
    def run(folder, seed):
        return Path(folder, "nano/math/m/grpo", f"seed{seed}", "evaluation.json")

    found = [[run("a", 0), run("a", 1)], [run("b", 1), run("b", 2)]]
    assert each_run(found) == [run("a", 0), run("a", 1), run("b", 2)]


def test_without_an_evaluated_run_the_error_says_what_to_do(tmp_path, monkeypatch):
    def made(name):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.touch()
        return path.parent

    monkeypatch.setattr("r3l.runs.run_paths.STORED", tmp_path / "stored")
    with pytest.raises(DataError, match="make runs: `r3l run`, or `r3l train` and `r3l evaluate`$"):
        find_runs(tmp_path)

    # A checkout: its own results are no runs of the user's, but can be named.
    made("stored/curves/nano/math/m/grpo/seed0/evaluation.json")
    with pytest.raises(DataError, match=f"this project's own: --results {tmp_path}/stored$"):
        find_runs(tmp_path)

    other = made("mine/evaluation.json")
    with pytest.raises(DataError, match=f"folders of other names \\({other}\\): name these"):
        find_runs(tmp_path)

    trained = made("smol/webshop/m/grpo/seed0/manifest.json")
    with pytest.raises(DataError, match=f"is evaluated yet: r3l evaluate {trained}$"):
        find_runs(tmp_path)
