"""`r3l run` with the real Snakemake: what it shows, that Ctrl-C stops all of it, that it says what went wrong."""

import os
import signal
import time

import psutil
from filelock import FileLock
from program import Program
from start_models import cell

from r3l.files.json_files import read_jsonl
from r3l.files.paths import STORED

SMALL = ("train.steps=12", "train.tasks_per_step=2", "method_settings.group_size=4", "threads=1", "workers=1")
GRPO = f"results/{cell('math', 'grpo')}"
LOG = GRPO.replace("results/", "results/logs/train/") + "/seed0.log"


def r3l_run(folder, *methods):
    settings = [part for setting in SMALL for part in ("--set", setting)]
    arguments = ("table1", "--env", "math", "--method", ",".join(methods), *settings, "--cores", "2")
    return Program("r3l.cli", "run", *arguments, folder=folder)


def descendants(program):
    return psutil.Process(program.process.pid).children(recursive=True)


def test_ctrl_c_stops_all_of_it_and_the_same_command_ends_with_a_table(tmp_path):
    program = r3l_run(tmp_path, "grpo")
    while not read_jsonl(tmp_path / GRPO / "seed0" / "metrics.jsonl") and program.process.is_alive():
        time.sleep(0.1)
    started = descendants(program)
    assert any("snakemake" in " ".join(one.cmdline()) for one in started)
    os.kill(program.process.pid, signal.SIGINT)
    code, _, stderr = program.wait()
    assert code == 75 and "stopped by Ctrl-C; re-run" in stderr, stderr
    assert not psutil.wait_procs(started, timeout=10)[1]
    assert list((tmp_path / GRPO / "seed0" / "checkpoints").glob("step-*"))

    code, stdout, stderr = r3l_run(tmp_path, "grpo").wait()
    assert code == 0, stderr
    assert "math grpo seed 0: done, test success 0." in stderr and "\x1b" not in stderr + stdout
    assert "rule train" not in stderr  # that is in the log
    log = tmp_path / stderr.split("its log: ")[1].splitlines()[0]
    assert "rule train" in log.read_text()
    assert "grpo seed 0: 12/12" in (tmp_path / LOG).read_text()
    held = "of another configuration" if (STORED / cell("math", "grpo") / "seed0").is_dir() else "not stored"
    assert "  results/table1.csv" in stdout and f"stored runs: 1 {held}" in stdout and "Next:" in stdout


def test_a_failed_run_shows_its_log(tmp_path):
    (tmp_path / GRPO / "seed0").mkdir(parents=True)
    with FileLock(tmp_path / GRPO / "seed0" / ".lock"):  # another process at work there
        code, _, stderr = r3l_run(tmp_path, "grpo").wait()
    assert code == 2, stderr
    assert f"math grpo seed 0 did not finish; {LOG} ends with" in stderr
    assert f"error: run directory {GRPO}/seed0 is in use by another process" in stderr
    assert stderr.rstrip().endswith("error: some runs did not finish (see above); re-run to resume")
