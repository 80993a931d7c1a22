"""A soak, part of the standing attack: a long run takes no more memory, descriptors or threads at its end.

R3L_ATTACK_STEPS says how many steps.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from attack import STEPS
from program import Program

pytestmark = pytest.mark.attack

SECONDS = 2.0  # between samples
RUN = ["env_settings.max_turns=4", "method_settings.group_size=4", "train.tasks_per_step=1", "workers=2"]
FLAT = ("processes", "descriptors", "threads", "temporary files")
LINE = 3000  # bytes of a line of metrics.jsonl, at most


def samples(process: psutil.Process, run_dir: Path, temporary: Path) -> Iterator[dict[str, int]]:
    """What ``process`` and its workers hold, every few seconds from the first step on until they end."""
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
        time.sleep(SECONDS)
        with contextlib.suppress(psutil.NoSuchProcess, FileNotFoundError):  # it has ended, a checkpoint was replaced
            everyone = [process, *process.children(recursive=True)]
            yield {
                "step": len((run_dir / "metrics.jsonl").read_bytes().splitlines()),
                "processes": len(everyone),
                "memory": sum(one.memory_info().rss for one in everyone),
                "descriptors": sum(one.num_fds() for one in everyone),
                "threads": sum(one.num_threads() for one in everyone),
                "checkpoints": sum(path.stat().st_size for path in run_dir.glob("checkpoints/*/*")),
                "temporary files": len(list(temporary.iterdir())),
            }


def test_a_long_run_takes_no_more_at_its_end(tmp_path, monkeypatch, capsys):
    """WebShop with two workers and a checkpoint every five steps."""
    run_dir, temporary = tmp_path / "run", tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    options = [part for setting in [*RUN, f"train.steps={STEPS}"] for part in ("--set", setting)]
    program = Program("r3l.cli", "train", "--env", "webshop", "--method", "grpo", "--run-dir", run_dir, *options)
    rows = list(samples(psutil.Process(program.process.pid), run_dir, temporary))
    code, _, stderr = program.wait()
    assert code == 0, stderr
    second, last = ([row for row in rows if STEPS * k / 4 <= row["step"] < STEPS * (k + 1) / 4] for k in (1, 3))
    median = {key: [statistics.median(row[key] for row in quarter) for quarter in (second, last)] for key in rows[0]}
    with capsys.disabled():
        ends = ", ".join(f"{key} {a:.0f} -> {b:.0f}" for key, (a, b) in median.items())
        print(f"\nattack: {STEPS} steps, medians of the second and of the last quarter: {ends}")
    for key in FLAT:
        assert median[key][0] == median[key][1], key
    for key in ("memory", "checkpoints"):
        assert median[key][1] <= 1.05 * median[key][0], key
    assert (run_dir / "metrics.jsonl").stat().st_size <= LINE * STEPS
