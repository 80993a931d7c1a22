"""Commands that train with real Ray and Trinity, and what their runs must have in common."""

import os
import subprocess
import sys
import time

import psutil
import pytest
from safetensors.torch import load_file

from r3l.files.json_files import read_jsonl
from r3l.files.paths import ROOT

SETTINGS = ["train.tasks_per_step=2", "train.save_every=1", "workers=1", "method_settings.group_size=4"]
SETTINGS += ["compute=transformers"]  # both engines can use it: Trinity's environment has no numba


def start(engine, steps, run_dir, method="r3l", settings=(), **variables):
    options = ["--engine", engine, "--method", method, "--run-dir", str(run_dir)]
    for setting in (f"train.steps={steps}", *SETTINGS, *settings):
        options += ["--set", setting]
    # Ray ends if one of its processes, which import much, takes 15 s to start: bytecode is kept.
    kept = {"PYTHONDONTWRITEBYTECODE": ""}
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **kept, **variables}
    command = [sys.executable, "-m", "r3l.cli", "train", *options]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment, cwd=ROOT)


def finish(process):
    _, errors = process.communicate(timeout=1800)
    return process.returncode, errors


def family(process):
    return psutil.Process(process.pid).children(recursive=True)


def wait_for_step(run_dir, step, process):
    while len(read_jsonl(run_dir / "metrics.jsonl")) < step:
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.2)


def assert_same_steps(local, trinity, entropy=1e-5):
    ours, theirs = read_jsonl(local / "metrics.jsonl"), read_jsonl(trinity / "metrics.jsonl")
    local_alone = ("seconds/", "kl_to_start", "logprob_mismatch/")
    # Measured from the log-probs of the update, which Trinity's trainer does not report.
    local_alone += ("distilled/", "imitated/", "teacher/")
    for a, b in zip(ours, theirs, strict=True):
        for key in a:
            if not key.startswith(local_alone):
                tolerance = entropy if key == "entropy" else 1e-5
                assert b[key] == pytest.approx(a[key], abs=tolerance), (a["step"], key)
        assert b["weights/behind"] == 0 and b["dropped/tasks"] == 0


def largest_difference(a, b):
    first, second = load_file(a), load_file(b)
    assert set(first) == set(second)
    return max((first[name] - second[name]).abs().max().item() for name in first)
