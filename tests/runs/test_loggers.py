"""What other viewers get is what metrics.jsonl says, once, however often a run was resumed; by their own readers."""

import shutil
import sqlite3
import sys

import pytest

from r3l.core.errors import ConfigError
from r3l.core.files import append_jsonl, read_jsonl
from r3l.core.paths import STORED
from r3l.runs import loggers
from r3l.runs.places import find_runs

RUN = next(path.parent for path in find_runs(STORED) if path.parent.parent.name == "r3l")


@pytest.fixture
def run_dir(tmp_path):
    shutil.copytree(RUN, tmp_path / "seed0")
    for row in read_jsonl(RUN / "metrics.jsonl") if not (tmp_path / "seed0" / "metrics.jsonl").exists() else []:
        append_jsonl(tmp_path / "seed0" / "metrics.jsonl", row)
    return tmp_path / "seed0"


def test_tensorboard_reads_every_metric_of_every_step(run_dir):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    lines = read_jsonl(run_dir / "metrics.jsonl")
    loggers.export(run_dir, ["tensorboard"])
    loggers.export(run_dir, ["tensorboard"])  # again: written again, not added to
    with loggers.open_loggers(["tensorboard"], run_dir, {}) as log:
        log({"step": len(lines) + 1, "train/success": 0.5})
    events = EventAccumulator(str(run_dir / "tensorboard")).Reload()
    success = [(event.step, event.value) for event in events.Scalars("train/success")]
    expected = [(line["step"], line["train/success"]) for line in lines] + [(len(lines) + 1, 0.5)]
    assert success == [(step, pytest.approx(value)) for step, value in expected]
    assert set(events.Tags()["scalars"]) == {key for line in lines for key in line}


def test_wandb_offline_keeps_every_step(run_dir):
    loggers.export(run_dir, ["wandb"])
    (path,) = (run_dir / "wandb").rglob("run-*.wandb")
    assert b"train/success" in path.read_bytes()


def test_trackio_keeps_every_step(run_dir):
    lines = read_jsonl(run_dir / "metrics.jsonl")
    loggers.export(run_dir, ["trackio"])
    (path,) = (run_dir / "trackio").rglob("*.db")
    with sqlite3.connect(path) as file:
        assert file.execute("SELECT count(*), max(step) FROM metrics").fetchone() == (len(lines), lines[-1]["step"])


def test_an_unknown_sink_and_a_missing_package_are_named(run_dir, monkeypatch):
    with pytest.raises(ConfigError, match="no logger 'excel'; known: tensorboard, trackio, wandb"):
        loggers.export(run_dir, ["excel"])
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ConfigError, match="pip install wandb"):
        loggers.export(run_dir, ["wandb"])
