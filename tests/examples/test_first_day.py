"""examples/first_day.py on a CPU: the same steps at tier nano, with the local engine."""

import json
import os
import subprocess
import sys

import pytest

from r3l.files.paths import ROOT


@pytest.mark.slow
def test_the_steps_run_on_a_cpu(tmp_path):
    words = ["--tier", "nano", "--env", "math", "--steps", "3", "--set", "workers=0"]
    program = [sys.executable, ROOT / "examples/first_day.py", *words]
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        program, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False, timeout=3000
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert (
        "resumed; log-prob mismatch" in done.stdout and "the exported weights load and are new" in done.stdout
    )
    assert done.stdout.count("forecast for 60 steps, from 2 measured") == 2
    assert done.stdout.rstrip().endswith("r3l run table1 --tier nano --profile slurm --dry-run")

    # The forecasts are where the workflow looks for them; a second start has nothing to do.
    (cell,) = (tmp_path / "results/nano/math").iterdir()
    assert {path.parent.parent.name for path in cell.glob("*/first_day/forecast.json")} == {"grpo", "r3l"}
    rows = (tmp_path / "results/first_day/two_steps/metrics.jsonl").read_text().splitlines()
    assert [json.loads(row)["step"] for row in rows] == [1, 2]


@pytest.mark.slow
def test_a_failed_check_of_the_doctor_is_named_with_its_fix(tmp_path):
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "ALFWORLD_DATA": str(tmp_path)}
    program = [sys.executable, ROOT / "examples/first_day.py", "--tier", "smol"]
    done = subprocess.run(
        program, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 1
    assert "checks failed" in done.stdout + done.stderr
    assert "- ALFWorld engine: DataError: " in done.stdout + done.stderr
