"""The trinity engine without Trinity: order of tasks, recovery after a crash, metrics, processes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from r3l.envs.registry import find_environment
from typer.testing import CliRunner

from r3l.cli import app
from r3l.config import resolve
from r3l.core.errors import ConfigError
from r3l.core.task import tasks_of_step
from r3l.files.json_files import append_jsonl, read_jsonl
from r3l.files.paths import ROOT
from r3l.trinity import job
from r3l.trinity.engine import metrics_of, reconcile, train
from r3l.trinity.job import reported, reset_to
from r3l.trinity.processes import Ray, TrinityEnvironment, _running
from r3l.trinity.tasksets import task_rows
from r3l.trinity.tinker import Tinker


def run_of(*overrides):
    return resolve("nano", "alfworld", "r3l@engine=trinity", 0, overrides=list(overrides))


def test_tasks_have_the_order_of_the_local_engine():
    run = run_of("train.steps=3", "train.tasks_per_step=5")
    ids = [row["id"] for row in task_rows(run)]
    tasks = find_environment("alfworld").tasks(run.env_settings.train_task_set)
    assert ids == [task.id for step in (1, 2, 3) for task in tasks_of_step(tasks, 0, step, 5)]
    rows = list(task_rows(run_of("train.steps=1", f"train.tasks_per_step={len(tasks) + 1}")))
    assert [row["occurrence"] for row in rows if row["id"] == rows[-1]["id"]] == [0, 1]


def test_after_a_crash_both_roles_of_trinity_resume_from_our_checkpoint(tmp_path):
    """The explorer was at step 7; the last checkpoint, the trainer's and ours, is of step 5."""
    for role, steps in (("explorer", range(1, 8)), ("trainer", range(1, 7))):
        (tmp_path / "monitor").mkdir(exist_ok=True)
        for step in steps:
            append_jsonl(tmp_path / "monitor" / f"steps-{role}.jsonl", {"step": step, role: step / 2})
    (tmp_path / "explorer_meta.json").write_text('{"latest_iteration": 7}')
    (tmp_path / "latest_state_dict_iteration.txt").write_text("6")
    (tmp_path / "log").mkdir()
    reset_to(tmp_path, 5, tasks_per_step=8)
    explorer = json.loads((tmp_path / "explorer_meta.json").read_text())
    assert explorer == {"latest_iteration": 5, "taskset_states": [{"current_index": 40}]}
    assert json.loads((tmp_path / "trainer_meta.json").read_text())["latest_iteration"] == 5
    assert (tmp_path / "latest_checkpointed_iteration.txt").read_text() == "5"
    Tinker(run_of(), tmp_path, tmp_path).reset_to(5)
    path = (tmp_path / "global_step_5" / "remote_checkpoint_path.txt").read_text()
    assert path == "tinker://run/weights/step-000005"
    assert not (tmp_path / "latest_state_dict_iteration.txt").exists() and not (tmp_path / "log").exists()
    assert reported(tmp_path) == {n: {"explorer": n / 2, "trainer": n / 2} for n in range(1, 6)}
    reset_to(tmp_path, 0, tasks_per_step=8)  # without a checkpoint Trinity starts over
    assert not tmp_path.exists()


REPORTED = {"grad_norm": 0.5, "explorer/time/wait_explore_step": 3.0, "time/train_step": 1.5}


def test_metrics_and_checkpoints_of_a_stopped_run_are_brought_to_one_step(tmp_path):
    """We read two steps, a third was reported, and the trainer was killed after it saved the fourth."""
    job, checkpoints = tmp_path / "job", tmp_path / "checkpoints"
    (job / "monitor").mkdir(parents=True)
    for step in (1, 2):
        append_jsonl(tmp_path / "metrics.jsonl", {"step": step})
    for step in (1, 2, 3, 4):
        append_jsonl(job / "monitor" / "steps-explorer.jsonl", {"step": step, **REPORTED})
    for step in (1, 2, 3):
        append_jsonl(job / "monitor" / "steps-trainer.jsonl", {"step": step})
    for step in (3, 4):
        (checkpoints / f"step-{step:06d}").mkdir(parents=True)
    reconcile(tmp_path, job, Tinker(run_of(), tmp_path, job))
    rows = read_jsonl(tmp_path / "metrics.jsonl")
    assert [row["step"] for row in rows] == [1, 2, 3] and rows[2]["grad_norm"] == 0.5
    assert [folder.name for folder in checkpoints.iterdir()] == ["step-000003"]
    new = tmp_path / "new"
    reconcile(new, new / "job", Tinker(run_of(), new, new / "job"))  # a new run: changes nothing
    assert not (tmp_path / "new").exists()


def test_metrics_have_the_local_engines_names():
    # 2 x (4 + 2 x 2) = 16 experiences per step
    run = run_of("train.tasks_per_step=2", "method_settings.group_size=4")
    metrics = {
        "experience_pipeline/train/success": 0.25,
        "experience_pipeline/tokens/response": 40.0,
        "experience_pipeline/tokens/masked": 10.0,
        "experience_pipeline/experience_count": 16.0,
        "actor/final_loss": 0.01,
        "actor/loss/policy": 0.02,
        "grad_norm": 0.5,
        "explorer/time/wait_explore_step": 3.0,
        "time/train_step": 1.5,
        "rollout/model_version": 4.0,
    }
    assert metrics_of(7, metrics, Tinker(run, Path(), Path())) == {
        "step": 7,
        "train/success": 0.25,
        "tokens/response": 40.0,
        "tokens/masked": 10.0,
        "rate/masked": 0.25,
        "loss": pytest.approx(0.16),  # the trainer's mean over 16 experiences
        "loss/policy": pytest.approx(0.32),
        "grad_norm": 0.5,
        "seconds/collect": 3.0,
        "seconds/train": 1.5,
    }


def test_without_trinitys_environment_the_error_names_the_fix(tmp_path, monkeypatch):
    monkeypatch.setenv("R3L_TRINITY", str(tmp_path))
    with pytest.raises(ConfigError, match="make trinity"):
        train(run_of(), tmp_path / "run")
    assert not (tmp_path / "run").exists()  # before any work


@pytest.mark.parametrize(
    "message",
    [
        "(autoscaler +34s) Error: No available node types can fulfill resource request {'GPU': 2.0}.",
        "WARNING 11-28 10:00 [trainer.py:242] NCCL weight sync failed (Explorer may have exited); continuing",
        "ERROR 11-28 10:00 [checkpoint.py:87] Background save 'model' failed at step 2",
    ],
)
def test_a_failure_after_which_trinity_waits_ends_the_run(message, tmp_path, monkeypatch):
    """Ray waits forever for GPUs, Trinity's explorer hours for weights."""
    monkeypatch.setattr(job, "GRACE", 0.0)
    program = f"import time; print({message!r}, flush=True); time.sleep(600)"
    with _running([sys.executable, "-c", program], tmp_path / "trinity.log", os.environ) as trinity:
        assert list(job.follow(tmp_path, tmp_path / "trinity.log", trinity))[0] == {}
        assert trinity.poll() is None  # Trinity itself would wait
    assert message in job.log_tail(tmp_path, tmp_path / "trinity.log")


def test_the_end_of_a_log_begins_with_the_line_that_names_the_failure(tmp_path):
    """Trinity prints it before a traceback through Ray and verl, here of 40 lines."""
    (tmp_path / "log").mkdir()
    traceback = [f"line {number}" for number in range(40)]
    log = tmp_path / "log/trainer.log"
    log.write_text("\n".join(["ready", "WARNING NCCL weight sync failed;", *traceback]))
    shown = job.log_tail(tmp_path, tmp_path / "trinity.log").splitlines()
    assert shown == [f"The end of {log}:", "WARNING NCCL weight sync failed;", "...", *traceback[-job.TAIL :]]
    log.write_text("\n".join([*traceback, "WARNING NCCL weight sync failed;"]))
    shown = job.log_tail(tmp_path, tmp_path / "trinity.log").splitlines()
    assert shown[1:] == [*traceback[-job.TAIL + 1 :], "WARNING NCCL weight sync failed;"]


def test_ray_that_does_not_come_up_is_started_again(tmp_path):
    """On a busy machine its agents take longer than the 15 s that it gives them."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/ray"
    program.write_text(
        "#!/bin/sh\nif [ -f tried ]; then echo Ray runtime started.; sleep 600; fi\ntouch tried; exit 1\n".replace(
            "tried", str(tmp_path / "tried")
        )
    )
    program.chmod(0o755)
    with TrinityEnvironment(tmp_path).ray(tmp_path, "127.0.0.1", {}) as ray:
        assert ray.heads[0].poll() is None and (tmp_path / "tried").is_file()
    assert ray.heads[0].poll() is not None


def test_the_end_of_ray_ends_the_wait_for_trinity(tmp_path):
    """Trinity itself would try to reach Ray for a quarter of an hour."""
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    dies = [sys.executable, "-c", "print('Some Ray subprocesses exited unexpectedly')"]
    with (
        _running(sleep, tmp_path / "trinity.log", os.environ) as trinity,
        _running(dies, tmp_path / "ray.log", os.environ) as head,
    ):
        ray = Ray(TrinityEnvironment(tmp_path), tmp_path, "", {}, (head,))
        assert set(map(str, job.follow(tmp_path, tmp_path / "trinity.log", trinity, *ray.heads))) == {"{}"}
        assert trinity.poll() is None and "exited unexpectedly" in ray.log_tail()
        assert Ray(TrinityEnvironment(tmp_path), tmp_path, "", {}, (trinity,)).log_tail() is None


FAMILY = """
import subprocess, time
subprocess.Popen(["sleep", "600"])
print("up", flush=True)
time.sleep(600)
"""


def started(log):
    """Wait until both processes of FAMILY run."""
    while b"up" not in (log.read_bytes() if log.exists() else b""):
        time.sleep(0.02)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_processes_end_with_a_stopped_parent(tmp_path, how):
    """SIGTERM runs every `finally`; after SIGKILL the kernel signals the process that its parent died."""
    log = tmp_path / "log"
    program = f"""
import os, time
from pathlib import Path
from r3l.runs.preemption import stop_at_once
from r3l.trinity import processes
processes.SECONDS_TO_END = 1.0
family, log = [{sys.executable!r}, "-c", {FAMILY!r}], Path({str(log)!r})
with stop_at_once(), processes._running(family, log, os.environ) as process:
    print(process.pid, flush=True)
    time.sleep(600)
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True)
    process = psutil.Process(int(parent.stdout.readline()))
    started(log)
    parent.send_signal(how)
    parent.wait(timeout=30)
    psutil.wait_procs([process], timeout=10)
    assert not process.is_running()


def test_zero_shot_needs_neither_trinity_nor_gpus(tmp_path, monkeypatch):
    """Zero-shot is a row of the paper tier's tables: it uses the base checkpoint in its place."""
    monkeypatch.setenv("R3L_TRINITY", str(tmp_path))
    run_dir = tmp_path / "run"
    options = ["--engine", "trinity", "--method", "zero_shot", "--run-dir", str(run_dir)]
    done = CliRunner().invoke(app, ["train", *options])
    assert done.exit_code == 0, done.output
    result = json.loads((run_dir / "result.json").read_text())
    assert (result["method"], result["steps"]) == ("zero_shot@engine=trinity", 0)
    assert result["checkpoint"] is None and not (run_dir / "checkpoints").exists()
