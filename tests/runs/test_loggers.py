"""What other viewers get is what metrics.jsonl says, once, however often a run was resumed; by their own readers."""

import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from r3l.core.errors import ConfigError
from r3l.files.json_files import append_jsonl, read_json, read_jsonl
from r3l.files.paths import STORED
from r3l.runs import loggers
from r3l.runs.places import find_runs

OPEN = """
import sys
from pathlib import Path
from r3l.files.json_files import read_json
from r3l.runs.loggers import open_loggers
name, run_dir = sys.argv[1], Path(sys.argv[2])
with open_loggers([name], run_dir, read_json(run_dir / "manifest.json")["run"]):
    pass
"""
RUN = next(path.parent for path in find_runs(STORED) if path.parent.match("r3l/seed0"))


@pytest.fixture
def run_dir(tmp_path):
    shutil.copytree(RUN, tmp_path / "seed0")
    for row in read_jsonl(RUN / "metrics.jsonl") if not (tmp_path / "seed0" / "metrics.jsonl").exists() else []:
        append_jsonl(tmp_path / "seed0" / "metrics.jsonl", row)
    return tmp_path / "seed0"


def leveldb_log(data, header):
    """The records of a log in LevelDB's format: blocks of 32 KiB, chunks of (crc, length, type)."""
    at, record = header, b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:  # too short for another chunk
            at += 32768 - at % 32768
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        record += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield record
            record = b""


def test_tensorboard_reads_every_metric_of_every_step(run_dir):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    lines = read_jsonl(run_dir / "metrics.jsonl")
    config = read_json(run_dir / "manifest.json")["run"]
    with loggers.open_loggers(["tensorboard"], run_dir, config):
        pass  # below it is written again, not added to
    with loggers.open_loggers(["tensorboard"], run_dir, config) as log:
        log({"step": len(lines) + 1, "train/success": 0.5})
    events = EventAccumulator(str(run_dir / "tensorboard")).Reload()
    success = [(event.step, event.value) for event in events.Scalars("train/success")]
    expected = [(line["step"], line["train/success"]) for line in lines] + [(len(lines) + 1, 0.5)]
    assert success == [(step, pytest.approx(value)) for step, value in expected]
    assert set(events.Tags()["scalars"]) == {key for line in lines for key in line}


def test_wandb_offline_keeps_every_step(run_dir):
    """In the file that `wandb sync` sends, by wandb's own messages. Its service writes the last of them after
    `finish` has returned, so: by a command of its own, which waits for the service."""
    from wandb.proto.wandb_internal_pb2 import Record

    subprocess.run([sys.executable, "-c", OPEN, "wandb", run_dir], check=True, capture_output=True)
    (path,) = (run_dir / "wandb").rglob("run-*.wandb")
    records = list(map(Record.FromString, leveldb_log(path.read_bytes(), header=7)))
    (run,) = [record.run for record in records if record.WhichOneof("record_type") == "run"]
    config = read_json(run_dir / "manifest.json")["run"]
    cell = f"{config['env']}/{Path(config['model']).name}/r3l"
    assert (run.project, run.run_group, run.display_name) == ("r3l-nano", cell, f"{cell}/seed{config['seed']}")
    steps = [record.history.step.num for record in records if record.WhichOneof("record_type") == "history"]
    assert steps == [line["step"] for line in read_jsonl(run_dir / "metrics.jsonl")]


def test_an_unknown_sink_and_a_missing_package_are_named(run_dir, monkeypatch):
    with (
        pytest.raises(ConfigError, match="no logger 'excel'; known: tensorboard, wandb"),
        loggers.open_loggers(["excel"], run_dir, {}),
    ):
        pass
    monkeypatch.setitem(sys.modules, "wandb", None)
    config = read_json(run_dir / "manifest.json")["run"]
    with pytest.raises(ConfigError, match="pip install wandb"), loggers.open_loggers(["wandb"], run_dir, config):
        pass
