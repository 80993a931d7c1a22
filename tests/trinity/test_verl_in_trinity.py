"""Real Ray and Trinity as far as they go without a GPU: verl starts its workers, and CUDA is not there."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from start_models import START_FOLDER

from r3l.config import ClusterConfig
from r3l.files.paths import ROOT
from r3l.trinity import verl
from r3l.trinity.processes import Environment

FOLDER = Path(os.environ.get("R3L_TRINITY", ROOT / ".venv-trinity"))
NO_CUDA = "cpu:gloo,cpu:nccl"  # what verl asks of torch where it finds no GPU: two backends for the CPU

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (FOLDER / "bin/trinity").is_file(), reason=f"no Trinity in {FOLDER} (make trinity)"),
    pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="there is a GPU: what is tested is its absence"),
]


def test_a_run_goes_to_verls_workers_and_their_error_is_reported(tmp_path):
    """The model is the nano one under the name of a model whose GPUs are planned."""
    shutil.copytree(START_FOLDER, tmp_path / "models/Qwen2.5-1.5B-Instruct")
    given = {"PYTHONPATH": str(ROOT), "R3L_MODELS": str(tmp_path / "models"), "CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7"}
    settings = ("train.tasks_per_step=2", "method_settings.group_size=2")
    command = [
        sys.executable,
        "-m",
        "r3l.cli",
        "train",
        "--engine",
        "trinity",
        "--method",
        "grpo",
        "--set",
        "train.steps=1",
    ]
    command += ["--model", "qwen2.5-1.5b", "--run-dir", str(tmp_path / "run")]
    command += [part for setting in settings for part in ("--set", setting)]
    process = subprocess.Popen(command, env={**os.environ, **given}, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    started = set()
    while process.poll() is None:
        started |= set(psutil.Process(process.pid).children(recursive=True))
        time.sleep(0.5)
    errors = process.stderr.read()
    assert process.returncode == 2
    assert f"Trinity failed after 0 of 1 steps. The end of {tmp_path}/run/trinity/" in errors and NO_CUDA in errors
    assert "VERLTrainer" in (tmp_path / "run/trinity/trinity.log").read_text()
    assert not (tmp_path / "run/result.json").exists() and not (tmp_path / "run/checkpoints").exists()
    assert len(started) > 5 and not [p for p in started if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


def test_nodes_join_the_head(tmp_path, monkeypatch):
    """Real Ray; `srun` is a double that starts the other node's Ray on this machine."""
    srun = tmp_path / "srun"
    srun.write_text('#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done\nexec "$@"\n')
    srun.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    planned = ClusterConfig(nodes=2, gpus_per_node=8, engines=8, sampling_memory=0.8)
    environment = Environment.find()
    with environment.ray(tmp_path, verl.own_address(), verl.sizes_of_node(planned)) as ray:
        assert environment.count(ray.variables) == (1, 8)
        with verl.joining_nodes(ray, planned):
            assert environment.count(ray.variables) == (2, 16)
            assert environment.gpus_of(ray.address) == 16
