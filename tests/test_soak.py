"""A soak, part of the standing attack: a run of many steps takes no more of anything at its end than at its beginning.

R3L_ATTACK_STEPS says how many; R3L_ATTACK_OUT keeps soak_nano.csv and soak_nano.png in a folder.
"""

import os
import statistics
from pathlib import Path

import psutil
import pytest
import soak
from attack import STEPS
from program import Program

pytestmark = pytest.mark.attack

FLAT = ("processes", "trainer descriptors", "trainer threads", "workers descriptors", "workers threads")
LINE = 3000  # bytes of a line of metrics.jsonl, at most


def test_a_long_run_takes_no_more_at_its_end(tmp_path, monkeypatch, capsys):
    """WebShop with two workers and a checkpoint every five steps."""
    run_dir, temporary = tmp_path / "run", tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    options = [part for setting in soak.RUN for part in ("--set", setting)]
    train = (
        "train",
        "--env",
        "webshop",
        "--method",
        "grpo",
        "--set",
        f"train.steps={STEPS}",
        *options,
        "--run-dir",
        run_dir,
    )
    program = Program("r3l.cli", *train)
    rows = list(soak.samples(psutil.Process(program.process.pid), run_dir, temporary))
    code, _, stderr = program.wait()
    assert code == 0, stderr
    if out := os.environ.get("R3L_ATTACK_OUT"):
        soak.write(rows, Path(out) / "soak_nano.csv")
        caption = (
            f"{STEPS:,} steps of GRPO on WebShop, tier nano, two environment workers. Every five steps a checkpoint "
        )
        caption += "is written beside the two that are kept (peaks); metrics.jsonl\ngrows by a line a step."
        soak.draw(rows, Path(out) / "soak_nano.png", caption)
    early, late = soak.quarter(rows, 1), soak.quarter(rows, 3)
    median = {key: [statistics.median(row[key] for row in part) for part in (early, late)] for key in rows[0]}
    with capsys.disabled():
        ends = ", ".join(f"{key} {a:.0f} -> {b:.0f}" for key, (a, b) in median.items())
        print(f"\nattack: {STEPS} steps, medians of the second and of the last quarter: {ends}")
    for key in FLAT:
        assert median[key][0] == median[key][1], key
    for key in ("trainer memory", "workers memory", "checkpoints"):
        assert median[key][1] <= 1.05 * median[key][0], key
    assert rows[-1]["metrics"] <= LINE * STEPS and median["temporary files"] == [0, 0]
