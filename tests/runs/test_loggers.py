"""What other viewers get is what metrics.jsonl says, once, however often a run was resumed; by their own
readers."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from r3l.files.json_files import append_jsonl, read_json, read_jsonl
from r3l.files.paths import STORED
from r3l.files.writing import write_json_atomic
from r3l.runs import loggers
from r3l.runs.run_paths import find_runs

OPEN = """
import sys
from pathlib import Path
from r3l.runs.loggers import open_loggers
name, run_dir = sys.argv[1], Path(sys.argv[2])
with open_loggers([name], run_dir):
    pass
"""
RUN = next(path.parent for path in find_runs(STORED) if path.parent.match("r3l/seed0"))


@pytest.fixture
def run_dir(tmp_path):
    shutil.copytree(RUN, tmp_path / "seed0")
    for row in (
        read_jsonl(RUN / "metrics.jsonl") if not (tmp_path / "seed0" / "metrics.jsonl").exists() else []
    ):
        append_jsonl(tmp_path / "seed0" / "metrics.jsonl", row)
    return tmp_path / "seed0"


def test_tensorboard_reads_every_metric_of_every_step(run_dir):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    lines = read_jsonl(run_dir / "metrics.jsonl")
    with loggers.open_loggers(["tensorboard"], run_dir):
        pass  # below it is written again, not added to
    with loggers.open_loggers(["tensorboard"], run_dir) as log:
        log({"step": len(lines) + 1, "train/success": 0.5})
    events = EventAccumulator(str(run_dir / "tensorboard")).Reload()
    success = [(event.step, event.value) for event in events.Scalars("train/success")]
    expected = [(line["step"], line["train/success"]) for line in lines] + [(len(lines) + 1, 0.5)]
    assert success == [(step, pytest.approx(value)) for step, value in expected]
    assert set(events.Tags()["scalars"]) == {key for line in lines for key in line}


def test_wandb_offline_keeps_every_step(run_dir):
    """In the file that `wandb sync` sends. Its service writes the last lines after `finish` has returned, so:
    by a command of its own, which waits for the service."""
    subprocess.run([sys.executable, "-c", OPEN, "wandb", run_dir], check=True, capture_output=True)
    (path,) = (run_dir / "wandb").rglob("run-*.wandb")
    config = read_json(run_dir / "manifest.json")["run"]
    cell = f"{config['env']}/{Path(config['model']).name}/r3l"
    content = path.read_bytes()
    assert b"r3l-nano" in content and f"{cell}/seed{config['seed']}".encode() in content
    assert content.count(b"train/success") >= len(read_jsonl(run_dir / "metrics.jsonl"))


def test_wandb_updates_a_run_that_is_resumed_and_no_other(run_dir):
    """Each id is that of the fingerprint, so `wandb sync` writes no run over another one of its cell and seed."""

    def wandb_id(**changes):
        content = read_json(run_dir / "manifest.json") | changes
        write_json_atomic(run_dir / "manifest.json", content)
        subprocess.run([sys.executable, "-c", OPEN, "wandb", run_dir], check=True, capture_output=True)
        (path,) = (run_dir / "wandb").rglob("run-*.wandb")
        return path.stem.removeprefix("run-")

    fingerprint = read_json(run_dir / "manifest.json")["fingerprint"]
    assert wandb_id() == wandb_id() == fingerprint
    assert wandb_id(fingerprint="0123456789abcdef") == "0123456789abcdef"


@pytest.mark.slow
def test_a_run_that_was_set_aside_keeps_its_own_id_in_wandb(tmp_path):
    """Two rates in one run directory, by the command: `wandb sync` on either folder updates its own run."""
    run_dir = tmp_path / "seed0"
    small = ["train.steps=1", "train.tasks_per_step=1", "method_settings.group_size=2", "workers=0"]
    command = ["train", "--env", "math", "--method", "grpo", "--run-dir", str(run_dir), "--logger", "wandb"]
    for rate in ("1e-4", "7e-4"):
        settings = [part for setting in (*small, f"train.lr={rate}") for part in ("--set", setting)]
        trained = subprocess.run(
            [sys.executable, "-m", "r3l.cli", *command, *settings, "--set-aside"],
            capture_output=True,
            text=True,
        )
        assert trained.returncode == 0, trained.stderr
    ids = {}
    for folder in tmp_path.iterdir():
        manifest = read_json(folder / "manifest.json")
        (path,) = (folder / "wandb").rglob("run-*.wandb")
        ids[manifest["run"]["train"]["lr"]] = path.stem.removeprefix("run-")
        assert path.stem.removeprefix("run-") == manifest["fingerprint"]
    assert sorted(ids) == [1e-4, 7e-4] and len(set(ids.values())) == 2
