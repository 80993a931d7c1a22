"""A judge on a real vLLM server (`make vllm`): what it is asked is counted, and it may be restarted in the middle."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ports import free_port
from start_models import START_MODEL
from vllm_server import INSTALLED, counted, vllm

from r3l.files.json_files import read_json, read_jsonl

pytestmark = [pytest.mark.slow, INSTALLED]
SETTINGS = ["judge.prompts=as_policy", "train.tasks_per_step=4", "train.save_every=1"]


def training(env: str, judge: str, url: str, run_dir: Path) -> subprocess.Popen[str]:
    """``r3l train``: two steps of RLTF-SD under a judge that samples at temperature 1, started."""
    options = ["--env", env, "--method", "rltf_sd@feedback=judge", "--set", "train.steps=2", "--run-dir", str(run_dir)]
    options += [word for setting in (f"judge.model={judge}", *SETTINGS) for word in ("--set", setting)]
    command = [sys.executable, "-m", "r3l.cli", "train", *options]
    return subprocess.Popen(command, env=os.environ | {"R3L_JUDGE": url}, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> str:
    """What it logged."""
    _, errors = process.communicate(timeout=900)
    assert process.returncode == 0, errors
    return errors


def test_what_a_judge_reads_and_writes_is_what_its_server_counted(tmp_path):
    with vllm("puzzles-1.5m", free_port()) as url:
        finish(training("knights_knaves", "puzzles-1.5m", url, tmp_path))
        served = {name: counted(url, f"{name}_total") for name in ("prompt_tokens", "generation_tokens")}
        requests = counted(url, "request_success_total")
    budget = read_json(tmp_path / "result.json")["budget"]
    assert budget["critique/by_judge"] == budget["judge/requests"] == requests > 0
    assert {"prompt_tokens": budget["prompt/judge"], "generation_tokens": budget["tokens/judge"]} == served
    assert budget["retry/count"] > 0


def test_a_judge_that_is_killed_in_the_middle_is_asked_again(tmp_path):
    """Between two steps. The prompts of ALFWorld together are more than one batch of the server."""
    port = free_port()
    with vllm(START_MODEL, port) as url:
        process = training("alfworld", START_MODEL, url, tmp_path)
        while len(read_jsonl(tmp_path / "metrics.jsonl")) < 1:
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.1)
    with vllm(START_MODEL, port) as url:
        logged = finish(process)
    first, second = read_jsonl(tmp_path / "metrics.jsonl")
    repeated = sum(count for key, count in second.items() if key.startswith("judge/repeated/"))
    assert repeated > 0 and "asked again (attempt 1 of 8)" in logged
    for step in (first, second):
        again = sum(count for key, count in step.items() if key.startswith("judge/repeated/"))
        assert step["judge/requests"] - again == step["critique/by_judge"] > 0
