"""GPUs shared out by real processes; which ids exist is what CUDA_VISIBLE_DEVICES says, so no GPU is
needed."""

import os
import signal
import subprocess
import sys
import textwrap
from contextlib import ExitStack

import pytest

from r3l.core.errors import ConfigError
from r3l.files.paths import ROOT
from r3l.runs import gpu_locks

RUN = """
    import sys
    from pathlib import Path
    from r3l.runs import gpu_locks
    gpu_locks.PAUSE = 0.05
    with gpu_locks.reserved_gpus(int(sys.argv[1]), Path(sys.argv[2])) as gpus:
        import os
        assert os.environ["CUDA_VISIBLE_DEVICES"] == ",".join(gpus)
        print(",".join(gpus), flush=True)
        sys.stdin.read()
"""


@pytest.fixture
def start(tmp_path):
    """start(count) begins a run on a machine with GPUs 0 and 2; it ends when its standard input does."""
    started = []

    def start(count):
        environment = os.environ | {"CUDA_VISIBLE_DEVICES": "0,2", "PYTHONWARNINGS": "error"}
        command = [sys.executable, "-c", textwrap.dedent(RUN), str(count), str(tmp_path)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen(command, env=environment, text=True, **pipes)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_every_run_has_a_gpu_of_its_own(start):
    first, second = start(1), start(1)
    assert sorted(process.stdout.readline().strip() for process in (first, second)) == ["0", "2"]


def test_as_many_runs_share_a_gpu_as_the_user_says(start, monkeypatch):
    """Two GPUs of two places each: four runs begin, the fifth waits."""
    monkeypatch.setenv(gpu_locks.SHARED, "2")
    four = [start(1) for _ in range(4)]
    assert sorted(process.stdout.readline().strip() for process in four) == ["0", "0", "2", "2"]
    assert start(1).stderr.readline() == "waiting for 1 of the GPUs 0,2\n"


@pytest.mark.parametrize("stated", ["0", "-1", "two", ""])
def test_a_number_of_runs_that_is_none_is_refused(stated, monkeypatch, tmp_path):
    monkeypatch.setenv(gpu_locks.SHARED, stated)
    monkeypatch.setenv(gpu_locks.VISIBLE, "0")
    with pytest.raises(ConfigError, match="R3L_RUNS_PER_GPU is"), gpu_locks.reserved_gpus(1, tmp_path):
        pass


def test_who_comes_late_waits_until_a_run_ends_even_by_sigkill(start):
    first = start(1)
    mine = first.stdout.readline().strip()
    second = start(1)
    other = second.stdout.readline().strip()
    late = start(2)
    assert late.stderr.readline() == "waiting for 2 of the GPUs 0,2\n"
    first.send_signal(signal.SIGKILL)
    second.communicate("")
    assert sorted(late.stdout.readline().strip().split(",")) == sorted([mine, other])


def test_more_than_there_are_is_an_error(monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,2")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    with pytest.raises(ConfigError, match=r"configs/resources.yaml .* requests 3 GPUs, but 2 are visible"):
        gpu_locks.reserved_gpus(3, tmp_path).__enter__()


MODEL = ("--env", "math", "--set", "workers=0")
COMMANDS = {
    "probe": ("probe", "math", "--out", "probe.json"),
    "sft": ("sft", "smol_alfworld", "--model", "alfworld-1.5m-plain", "--out", "model", "--workers", "0"),
    "doctor step": ("doctor", "step", *MODEL),
    "bench step": ("bench", "step", *MODEL),
    "bench train": ("bench", "train", *MODEL),
}


@pytest.fixture
def while_reserved(tmp_path, monkeypatch):
    """while_reserved(command) starts an r3l command while a run has reserved the only GPU."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    with gpu_locks.reserved_gpus(1, tmp_path / gpu_locks.FOLDER.name), ExitStack() as ended:

        def begin(command):
            words = [sys.executable, "-m", "r3l.cli", *command]
            environment = os.environ | {"TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            process = subprocess.Popen(words, cwd=tmp_path, env=environment, text=True, **pipes)
            ended.enter_context(process)
            ended.callback(process.kill)
            return process

        yield begin


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_waits_for_a_gpu_that_a_run_has_reserved(while_reserved, command):
    assert "waiting for 1 of the GPUs 0\n" in while_reserved(COMMANDS[command]).stderr


def test_a_command_on_a_cpu_waits_for_no_gpu(while_reserved):
    short = ("--set", "device=cpu", "--set", "train.tasks_per_step=1")
    process = while_reserved((*COMMANDS["doctor step"], *short))
    _, stderr = process.communicate()
    assert process.returncode == 0 and "of the GPUs" not in stderr, stderr


@pytest.mark.parametrize(
    ("count", "ids", "job"), [(0, "0,2", None), (1, "", None), (1, "-1", None), (1, "0,2", "17")]
)
def test_nothing_changes_where_nothing_is_to_be_shared_out(monkeypatch, tmp_path, count, ids, job):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ids)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    if job:
        monkeypatch.setenv("SLURM_JOB_ID", job)
    with gpu_locks.reserved_gpus(count, tmp_path):
        assert os.environ["CUDA_VISIBLE_DEVICES"] == ids
    assert not list(tmp_path.iterdir())
