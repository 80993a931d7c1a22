"""shortest.py trains a step. Copy this test for a method of your own."""

from pathlib import Path

import r3l
from r3l.files.json_files import read_jsonl

STEP = {"train.steps": 1, "train.tasks_per_step": 4, "workers": 0}


def test_a_step_imitates_successes_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setenv("R3L_METHODS", str(Path(__file__).parent))
    run_dir = r3l.train("math", "shortest", settings=STEP, run_dir=tmp_path / "run")
    (step,) = read_jsonl(run_dir / "metrics.jsonl")
    assert step["rollouts"] == 4 * 4  # tasks of a step, group_size
    assert step["rows/trained"] <= min(step["stop/success"], 4)  # at most one a task
    assert 0 < step["tokens/trained"] == step["trained/sft"] < step["tokens/generated"]
