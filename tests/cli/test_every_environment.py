"""Every environment that has tier nano trains from a fresh clone with a method of each kind: two steps."""

import pytest
from program import run

from r3l.config import names
from r3l.config.environment import EnvConfig
from r3l.config.files import load
from r3l.files.json_files import read_json, read_jsonl

NANO = [
    env for env in names("envs") if "nano" in load("envs", env, EnvConfig).tiers
]  # others need a download


@pytest.mark.slow
@pytest.mark.parametrize("method", ["grpo", "r3l", "rltf_sd"])
@pytest.mark.parametrize("env", NANO)
def test_two_steps(monkeypatch, capsys, tmp_path, env, method):
    monkeypatch.delenv("R3L_MATH", raising=False)  # nothing is fetched
    two_tasks = ("--set", "train.steps=2", "--set", "train.tasks_per_step=2", "--run-dir", tmp_path)
    code, _, stderr = run(monkeypatch, capsys, "train", "--env", env, "--method", method, *two_tasks)
    assert code == 0, stderr
    steps = read_jsonl(tmp_path / "metrics.jsonl")
    assert len(steps) == 2 and all(
        step["rollouts"] >= 8 and 0 <= step["train/success"] <= 1 for step in steps
    )
    assert read_json(tmp_path / "result.json")["env"] == env
