"""The Python API: the commands' own functions, imported when they are asked for."""

import json
import os
import subprocess
import sys

import pytest
from program import run as command
from start_models import cell

import r3l
from r3l.files.paths import ROOT
from r3l.runs.run_dir import locked

STEPS = {"train.steps": 1, "train.tasks_per_step": 2, "method_settings.group_size": 2, "workers": 0}
STEPS |= {"env_settings.max_turns": 1, "evaluation.tasks": 20}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A folder with one short run of each of two methods on the easy half of mathematics, evaluated."""
    folder = tmp_path_factory.mktemp("api") / "results"
    for method in ("grpo", "raft"):
        where = r3l.train("math", method, settings=STEPS, run_dir=folder / cell("math", method) / "seed0")
        r3l.evaluate(where)
    return folder


def test_every_name_is_offered_and_the_package_is_typed():
    assert set(r3l.__all__) <= set(dir(r3l))
    assert all(getattr(r3l, name) for name in r3l.__all__)
    assert (ROOT / "r3l" / "py.typed").is_file()
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = r3l.nothing


def test_train_does_what_the_command_does(results, monkeypatch, capsys, tmp_path):
    words = [part for key, value in STEPS.items() for part in ("--set", f"{key}={value}")]
    where = tmp_path / "by_command"
    code, stdout, _ = command(
        monkeypatch,
        capsys,
        "train",
        "--env",
        "math",
        "--method",
        "grpo",
        *words,
        "--run-dir",
        where,
        "--json",
    )
    ours = json.loads((results / cell("math", "grpo") / "seed0/result.json").read_text())
    assert code == 0 and json.loads(stdout) == ours


def test_a_directory_in_use_is_not_set_aside(monkeypatch, capsys, tmp_path):
    """Another process trains another configuration in it."""
    where = tmp_path / "in_use"
    where.mkdir()
    (where / "manifest.json").write_text(json.dumps({"fingerprint": "other"}))
    words = [part for key, value in STEPS.items() for part in ("--set", f"{key}={value}")]
    with locked(where):
        code, _, err = command(
            monkeypatch, capsys, "train", "--env", "math", *words, "--run-dir", where, "--set-aside"
        )
    assert code == 2 and f"{where} is in use by another process" in err and err.count("\n") == 1, err
    assert [path.name for path in tmp_path.iterdir()] == ["in_use"]


def test_results_are_rows_of_runs_and_groups(results):
    frame = r3l.load_results(results)
    assert sorted(zip(frame["method"], frame["group"], strict=True)) == sorted(
        (method, group) for method in ("grpo", "raft") for group in ("all", "easy", "hard")
    )
    for row in frame.to_dict("records"):
        evaluation = json.loads((ROOT / row["run_dir"] / "evaluation.json").read_text())
        assert row["success"] == evaluation["groups"][row["group"]]["success"]
        assert (row["steps"], row["rollouts"], row["seed"]) == (1, 4.0, 0)
    both = frame[frame.group == "all"].set_index("method")["success"]
    (compared,) = r3l.compare("grpo", "raft", results).to_dict("records")
    assert compared["difference_mean"] == pytest.approx(both["grpo"] - both["raft"])
    assert (compared["env"], compared["pairs"], compared["against"]) == ("math", 1, "raft")


def test_a_script_without_a_guard_is_told_of_it(tmp_path):
    settings = STEPS | {"workers": 1}
    once = "from r3l.processes import pool\npool.ATTEMPTS = 1\n"
    script = f"{once}import r3l\nr3l.train('math', 'grpo', settings={settings}, run_dir='run')\n"
    (tmp_path / "script.py").write_text(script)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "script.py calls r3l where it is imported" in done.stderr
    assert "put the calls under if __name__ == '__main__':" in done.stderr
