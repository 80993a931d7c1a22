"""Two cells through workflow/profiles/slurm on a real Slurm: one cancelled, one requeued, same bytes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time

import pytest
from slurm_plugin import sbatch_line
from start_models import start_model

from r3l.config import resolve
from r3l.files.json_files import read_jsonl
from r3l.files.paths import ROOT, STORED_MODELS
from r3l.local.engine import train
from r3l.workflow.resources import ResourceRequest

pytestmark = pytest.mark.slow

SMALL = ["train.steps=8", "train.tasks_per_step=2", "method_settings.group_size=4", "train.save_every=100"]
METHODS = ("grpo", "r3l@alpha=5,retries=2")
POLL = ["--slurm-status-command", "squeue", "--slurm-init-seconds-before-status-checks", "3"]


def lines_of(path):
    return len(read_jsonl(path / "metrics.jsonl"))


def until(condition, seconds=1200):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.2)


@pytest.fixture
def profile(tmp_path):
    """The profile as a user completes it: here there is no accounting, and the partition is called main."""
    text = (ROOT / "workflow" / "profiles" / "slurm" / "config.yaml").read_text()
    lines = [line for line in text.splitlines(keepends=True) if "slurm_account:" not in line]
    (tmp_path / "profile").mkdir()
    (tmp_path / "profile" / "config.yaml").write_text("".join(lines).replace("YOUR_PARTITION", "main"))
    return tmp_path / "profile"


def snakemake(slurm, folder, profile, *arguments):
    command = [
        sys.executable,
        "-m",
        "snakemake",
        "--snakefile",
        str(ROOT / "Snakefile"),
        "--profile",
        str(profile),
    ]
    return subprocess.Popen(
        [*command, *arguments],
        cwd=folder,
        env=slurm.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def test_a_cancelled_and_a_requeued_cell_end_with_the_bytes_of_a_quiet_run(slurm, profile, tmp_path):
    # The path of the model would run a program in any shell that reads it.
    model = tmp_path / "a $(touch ran) `touch ran` model"
    shutil.copytree(STORED_MODELS / start_model("math"), model)
    planned = [resolve("nano", "math", method, 0, str(model), overrides=SMALL) for method in METHODS]
    config = ["envs=[math]", f"model={model}", f"methods={json.dumps(METHODS)}", f"set={json.dumps(SMALL)}"]
    targets = [f"results/{run.directory}/evaluation.json" for run in planned]
    process = snakemake(slurm, tmp_path, profile, *POLL, *targets, "--config", *config)
    grpo, r3l = (tmp_path / "results" / run.directory for run in planned)

    def running(run_dir, method):
        """The job that trains there, once two steps are done."""
        until(lambda: lines_of(run_dir) >= 2 or process.poll() is not None)
        (job,) = [job for job, _, name in slurm.jobs("RUNNING") if name.endswith(f"_{method}_0")]
        return job

    requeued = running(grpo, METHODS[0])
    slurm("scontrol", "requeue", requeued)
    until(lambda: (requeued, "PENDING") in [job[:2] for job in slurm.jobs()])
    cancelled = running(r3l, METHODS[1])
    slurm("scancel", cancelled)
    until(lambda: (cancelled, "CANCELLED") in [job[:2] for job in slurm.jobs()])
    # Both were told by SIGTERM and left their last whole step, although 100 lie between checkpoints.
    assert (grpo / "checkpoints" / f"step-{lines_of(grpo):06d}").is_dir() and lines_of(grpo) < 8
    assert list((r3l / "checkpoints").glob("step-00000[2-7]"))
    slurm("scontrol", "update", f"JobId={requeued}", "StartTime=now")  # Slurm would wait for two minutes
    text = process.communicate(timeout=1200)[0].decode()
    assert process.returncode == 0, text
    states = {(comment.split("_wildcards")[0], job, state) for job, state, comment in slurm.jobs()}
    assert ("rule_train", cancelled, "CANCELLED") in states and (
        "rule_train",
        requeued,
        "COMPLETED",
    ) in states
    assert (
        len([1 for rule, _, _ in states if rule == "rule_train"]) == 3
    )  # the cancelled one went on as another job
    assert "Restarts=1" in slurm("scontrol", "show", "job", requeued)
    assert not list(tmp_path.rglob("ran"))
    for run, run_dir in zip(planned, (grpo, r3l), strict=True):
        quiet = tmp_path / "quiet" / run.method
        train(run, quiet)
        assert (run_dir / "result.json").read_bytes() == (quiet / "result.json").read_bytes()
        assert (run_dir / "evaluation.json").is_file()


def test_a_placeholder_stops_everything_before_a_job_is_sent(slurm, tmp_path):
    before = slurm.jobs()
    process = snakemake(slurm, tmp_path, ROOT / "workflow" / "profiles" / "slurm", "results/table1.csv")
    text = process.communicate(timeout=1200)[0].decode()
    assert process.returncode == 1 and "slurm_account is still YOUR_ACCOUNT; write yours" in text, text
    assert slurm.jobs() == before


@pytest.mark.parametrize(
    ("gres", "wanted"), [(None, "TresPerJob=gres:gpu:2"), ("gpu", "TresPerNode=gres:gpu:2")]
)
def test_both_ways_of_asking_for_gpus_get_them(slurm, tmp_path, gres, wanted):
    """The plugin's own sbatch line, for a node where other devices stand for GPUs."""
    request = ResourceRequest(mem_mb=100, runtime=5, gpu=2, nodes=1, cpus=1)
    line = sbatch_line(request, gres, workdir=tmp_path, log=tmp_path / "log", extra="-p main")
    job = slurm("sh", "-c", f"{line} --wrap 'echo $CUDA_VISIBLE_DEVICES; sleep 1'").strip()
    assert wanted in slurm("scontrol", "show", "job", job)
    until(lambda: (job, "COMPLETED") in [row[:2] for row in slurm.jobs()])
    assert (tmp_path / "log").read_text() == "0,1\n"
