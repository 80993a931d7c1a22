"""What other viewers get is what metrics.jsonl says, once, however often a run was resumed; by their own readers."""

import shutil
import sqlite3
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from r3l.core.errors import ConfigError
from r3l.files.json_files import append_jsonl, read_json, read_jsonl
from r3l.files.paths import STORED
from r3l.files.writing import write_json_atomic
from r3l.runs import loggers
from r3l.runs.places import find_runs

RUN = next(path.parent for path in find_runs(STORED) if path.parent.match("r3l/seed0"))


@pytest.fixture
def run_dir(tmp_path):
    shutil.copytree(RUN, tmp_path / "seed0")
    for row in read_jsonl(RUN / "metrics.jsonl") if not (tmp_path / "seed0" / "metrics.jsonl").exists() else []:
        append_jsonl(tmp_path / "seed0" / "metrics.jsonl", row)
    return tmp_path / "seed0"


def export(run_dir, viewer):
    """In a process of its own, which waits for the viewer's service."""
    code = f"import pathlib, r3l.runs.loggers as l; l.export(pathlib.Path({str(run_dir)!r}), [{viewer!r}])"
    return subprocess.Popen([sys.executable, "-c", code], cwd=run_dir, stderr=subprocess.PIPE, text=True)


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
    loggers.export(run_dir, ["tensorboard"])
    loggers.export(run_dir, ["tensorboard"])  # again: written again, not added to
    config = read_json(run_dir / "manifest.json")["run"]
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

    loggers.export(run_dir, ["wandb"])
    program = export(run_dir, "wandb")  # in its place
    assert program.wait() == 0, program.stderr.read()
    (path,) = (run_dir / "wandb").rglob("run-*.wandb")
    records = list(map(Record.FromString, leveldb_log(path.read_bytes(), header=7)))
    (run,) = [record.run for record in records if record.WhichOneof("record_type") == "run"]
    config = read_json(run_dir / "manifest.json")["run"]
    cell = f"{config['env']}/{Path(config['model']).name}/r3l"
    assert (run.project, run.run_group, run.display_name) == ("r3l-nano", cell, f"{cell}/seed{config['seed']}")
    steps = [record.history.step.num for record in records if record.WhichOneof("record_type") == "history"]
    assert steps == [line["step"] for line in read_jsonl(run_dir / "metrics.jsonl")]


def test_trackio_keeps_every_step(run_dir):
    lines = read_jsonl(run_dir / "metrics.jsonl")
    loggers.export(run_dir, ["trackio"])
    (path,) = (run_dir / "trackio").rglob("*.db")
    with sqlite3.connect(path) as file:
        assert file.execute("SELECT count(*), max(step) FROM metrics").fetchone() == (len(lines), lines[-1]["step"])


def test_runs_of_a_grid_are_one_trackio_project_also_when_they_write_at_the_same_time(run_dir, tmp_path):
    manifest = read_json(run_dir / "manifest.json")
    cell = f"{manifest['run']['env']}/{Path(manifest['run']['model']).name}/r3l"
    folders = [tmp_path / "results" / "nano" / cell / f"seed{seed}" for seed in (0, 1)]
    for seed, folder in enumerate(folders):
        shutil.copytree(run_dir, folder)
        write_json_atomic(folder / "manifest.json", {**manifest, "run": {**manifest["run"], "seed": seed}})
    for _ in range(2):  # the second time in place of the first
        programs = [export(folder, "trackio") for folder in folders]
        for program in programs:
            assert program.wait() == 0, program.stderr.read()
    steps = len(read_jsonl(run_dir / "metrics.jsonl"))
    with sqlite3.connect(tmp_path / "results" / "trackio" / "r3l-nano.db") as file:
        rows = file.execute("SELECT run_name, count(*), max(step) FROM metrics GROUP BY run_name ORDER BY run_name")
        assert rows.fetchall() == [(f"{cell}/seed{seed}", steps, steps) for seed in (0, 1)]


def test_a_run_elsewhere_keeps_trackios_file_itself(run_dir):
    config = read_json(run_dir / "manifest.json")["run"]
    assert loggers.place("trackio", run_dir, config) == run_dir / "trackio"


def test_an_unknown_sink_and_a_missing_package_are_named(run_dir, monkeypatch):
    with pytest.raises(ConfigError, match="no logger 'excel'; known: tensorboard, trackio, wandb"):
        loggers.export(run_dir, ["excel"])
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ConfigError, match="pip install wandb"):
        loggers.export(run_dir, ["wandb"])
