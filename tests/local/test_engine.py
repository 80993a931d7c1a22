"""The real thing, small: train on the real ALFWorld engine, be killed, resume, evaluate."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from r3l.config import resolve
from r3l.core.errors import CheckpointError, RunDirectoryError
from r3l.evaluation.evaluate import evaluate_run
from r3l.local.engine import train
from r3l.tracking import locked, read_jsonl

SMALL = ["train.tasks_per_step=2", "train.save_every=2", "workers=1", "threads=1"]


def small(method="r3l", steps=3, **settings):
    overrides = [*SMALL, f"train.steps={steps}", "method_settings.group_size=4"]
    return resolve("nano", "alfworld", method, 0, overrides=overrides)


def command(run_dir, method, steps):
    options = ["--method", method, "--steps", str(steps), "--run-dir", str(run_dir)]
    for override in [*SMALL, "method_settings.group_size=4"]:
        options += ["--set", override]
    return [sys.executable, "-m", "r3l.cli", "train", "--tier", "nano", "--env", "alfworld", *options]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """An uninterrupted run of three steps."""
    run_dir = tmp_path_factory.mktemp("uninterrupted")
    return run_dir, train(small(), run_dir)


def test_a_run_leaves_what_the_design_says(finished):
    run_dir, result = finished
    rows = read_jsonl(run_dir / "metrics.jsonl")
    assert [row["step"] for row in rows] == [1, 2, 3]
    manifest = json.loads((run_dir / "manifest.json").read_text())
    assert manifest["fingerprint"] == result["fingerprint"] == small().fingerprint()
    assert manifest["panel"]["test"]["tasks"] == 200
    assert result["steps"] == 3 and (run_dir / result["checkpoint"]).is_dir()
    for row in rows:
        base = 2 * 2  # two tasks, N/2 base rollouts each
        assert row["rollouts"] == base + row.get("retry/count", 0)
        assert row["reflection/count"] == base
        dropped = sum(v for k, v in row.items() if k.startswith("reflection/invalid/"))
        assert row.get("reflection/valid", 0) + dropped == base
        assert sum(v for k, v in row.items() if k.startswith("stop/")) == row["rollouts"]


def test_sigkill_and_resume_gives_the_same_bytes(finished, tmp_path):
    whole, _ = finished
    process = subprocess.Popen(command(tmp_path, "r3l", 3), stderr=subprocess.PIPE, start_new_session=True)
    while len(read_jsonl(tmp_path / "metrics.jsonl")) < 1 and process.poll() is None:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "result.json").exists()
    subprocess.run(command(tmp_path, "r3l", 3), check=True, capture_output=True)
    assert (tmp_path / "result.json").read_bytes() == (whole / "result.json").read_bytes()


def test_running_a_finished_run_again_changes_nothing(finished):
    run_dir, result = finished
    before = (run_dir / "metrics.jsonl").read_bytes()
    assert train(small(), run_dir) == result
    assert (run_dir / "metrics.jsonl").read_bytes() == before


def test_a_checkpoint_of_another_run_is_refused(finished):
    run_dir, _ = finished
    with pytest.raises(CheckpointError, match="another configuration"):
        train(small(method="grpo"), run_dir)


def test_a_directory_in_use_or_unwritable_is_refused(tmp_path):
    with locked(tmp_path), pytest.raises(RunDirectoryError, match="in use by another process"):
        train(small(), tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(RunDirectoryError, match="cannot be written"):
        train(small(), tmp_path / "file")


def test_evaluation_covers_the_panel_and_repeats_exactly(finished):
    run_dir, _ = finished
    first = evaluate_run(run_dir)
    episodes = (run_dir / "episodes.jsonl").read_bytes()
    assert first["episodes"] == len(episodes.splitlines()) == first["panel"]["tasks"] == 200
    assert first["groups"]["easy"]["episodes"] == first["groups"]["hard"]["episodes"] == 100
    assert sum(first["stops"].values()) == 200
    assert evaluate_run(run_dir) == first
    assert (run_dir / "episodes.jsonl").read_bytes() == episodes


def test_kl_needs_a_reference_and_changes_the_loss(tmp_path):
    overrides = [*SMALL, "train.steps=2", "method_settings.kl=k3", "method_settings.kl_coef=0.1"]
    run = resolve("nano", "alfworld", "grpo", 0, overrides=[*overrides, "method_settings.group_size=4"])
    train(run, tmp_path)
    rows = read_jsonl(tmp_path / "metrics.jsonl")
    assert rows[0]["clip_fraction"] == 0  # on policy: the trainer's ratios to the sampled log-probs are 1
    assert rows[0]["loss/kl"] == pytest.approx(0, abs=1e-5)  # the first step's model is its own reference
    assert Path(tmp_path / "result.json").is_file()
