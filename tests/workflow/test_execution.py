"""`r3l run` with the real Snakemake: what it shows, that Ctrl-C stops all of it, that it says what went
wrong."""

import os
import re
import shutil
import signal
import subprocess
import time

import psutil
import pytest
from program import Program
from start_models import cell

from r3l.cli.workflow import run_snakemake, snakemake_command
from r3l.core.errors import DataError
from r3l.files.json_files import read_jsonl
from r3l.files.paths import ROOT, STORED, STORED_MODELS
from r3l.workflow import execution, plan

SMALL = ("train.steps=12", "train.tasks_per_step=2", "method_settings.group_size=4", "threads=1", "workers=0")
SMALL += ("env_settings.max_turns=1", "evaluation.tasks=8")
GRPO = f"results/{cell('math', 'grpo')}"
LOG = GRPO.replace("results/", "results/logs/train/") + "/seed0.log"


def r3l_run(folder, *methods):
    settings = [part for setting in SMALL for part in ("--set", setting)]
    arguments = ("table1", "--env", "math", "--method", ",".join(methods), *settings, "--cores", "2")
    return Program("r3l.cli", "run", *arguments, folder=folder)


def descendants(program):
    return psutil.Process(program.process.pid).children(recursive=True)


def test_ctrl_c_stops_all_of_it_and_the_same_command_ends_with_a_table(tmp_path):
    made = tmp_path / "results/task_sets/nano/math.json"  # as by the rule that the test below runs
    made.parent.mkdir(parents=True)
    made.write_text("{}")
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


def test_ctrl_c_stays_ctrl_c_if_the_jobs_need_longer_than_they_are_given(tmp_path, monkeypatch):
    """A module in snakemake's place does not end on Ctrl-C: it is killed."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(execution, "GRACE", 0.1)
    ignore = "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('ready', flush=True)\n"
    (tmp_path / "stubborn.py").write_text(f"{ignore}time.sleep(600)\n")
    log = tmp_path / "log"
    with pytest.raises(KeyboardInterrupt), execution.started(["stubborn"], log) as process:
        while "ready" not in log.read_text() and process.poll() is None:
            time.sleep(0.05)
        raise KeyboardInterrupt
    assert process.returncode == -signal.SIGKILL


def test_a_failed_run_shows_its_log(tmp_path, monkeypatch, capfd):
    """A module in snakemake's place leaves what a failed job leaves."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    leave = f"from pathlib import Path\nlog = Path({LOG!r})\nlog.parent.mkdir(parents=True)\nlog.write_text('in use')\n"
    (tmp_path / "failing.py").write_text(f"{leave}raise SystemExit(1)\n")
    runs = plan.grid(plan.load(plan.workflow_content() | {"seeds": [0]}), ["math"], ["grpo"])
    with pytest.raises(DataError, match="some runs did not finish .*; re-run to resume"):
        run_snakemake(["failing"], runs)
    assert f"math grpo seed 0 did not finish; {LOG} ends with\n    in use\n" in capfd.readouterr().err


def test_a_second_workflow_in_a_folder_waits_for_the_first(tmp_path, monkeypatch):
    """Each deletes a file before it makes it, which the other may be reading. A dry run does not."""
    monkeypatch.chdir(tmp_path)
    made = tmp_path / "results" / "task_sets" / "nano" / "math.json"
    command = ("snakemake", "--snakefile", ROOT / "Snakefile", "results/task_sets/nano/math.json")
    with execution.folder_lock():
        assert execution.busy() and Program(*command, "--dry-run").wait()[0] == 0
        second = Program(*command, "--cores", "1")
        while execution.WAITING not in second.written("stderr") and second.process.is_alive():
            time.sleep(0.1)
        assert second.process.is_alive() and not made.exists()
    code, _, log = second.wait()
    assert code == 0 and made.is_file() and not execution.busy(), log


def test_a_name_reaches_every_command_of_the_rules_whole(tmp_path, monkeypatch):
    """The commands that snakemake prints, run by bash with an r3l that prints what it is given."""
    name = """-my it's (a) & b; $HOME 'q"uo`te #1 * a: b ~[y]|z"""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(STORED_MODELS / "math-1.5m", tmp_path / "models" / name)
    config = {"model": f"models/{name}", "envs": ["math"], "methods": ["zero_shot"]}
    code, out, log = Program(
        *snakemake_command(["results/table1.csv", "results/budget.csv"], config, ["--dry-run"])
    ).wait()
    assert code == 0, log
    cell = next(
        iter(plan.grid(plan.load(plan.workflow_content() | config), ["math"], ["zero_shot"]))
    ).removesuffix("/seed0")
    commands = re.findall(r"^Shell command: (r3l .*)", out + log, re.MULTILINE)
    for folder in ("task_set/nano", "table", f"train/{cell}", f"evaluate/{cell}"):
        (tmp_path / "results" / "logs" / folder).mkdir(parents=True)
    show = 'r3l() { printf "%s\\n" "$@" >&3; }\n'
    given = subprocess.run(
        ["bash", "-c", show + "exec 3>&1\n" + "\n".join(commands)], capture_output=True, text=True
    ).stdout
    words = [word for word in given.splitlines() if name in word]
    run_dir = f"results/{cell}/seed0"
    assert sorted(words) == sorted([f"models/{name}", run_dir, *[f"{run_dir}/evaluation.json"] * 2]), given
