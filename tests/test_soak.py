"""A soak, part of the standing attack: a long run takes no more memory, descriptors or threads at its end.

R3L_ATTACK_STEPS says how many steps.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import psutil
import pytest
from attack import STEPS
from program import Program

pytestmark = pytest.mark.attack

Sample = dict[str, float]
SECONDS = 2.0  # between samples
RUN = ["env_settings.max_turns=4", "method_settings.group_size=4", "train.tasks_per_step=1", "workers=2"]


def samples(process: psutil.Process, run_dir: Path, temporary: Path) -> Iterator[Sample]:
    """One every few seconds, from the first step on until ``process`` ends its workers."""
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
        time.sleep(SECONDS)
        try:
            sample = _sample(process, run_dir, temporary)
        except (psutil.NoSuchProcess, FileNotFoundError):  # it has just ended, or a checkpoint was replaced
            continue
        if sample["step"] and sample["workers memory"]:
            yield sample


def _sample(process: psutil.Process, run_dir: Path, temporary: Path) -> Sample:
    children = process.children(recursive=True)
    workers = [child for child in children if "spawn_main" in " ".join(child.cmdline())]
    metrics = run_dir / "metrics.jsonl"
    sample: Sample = {"step": len(metrics.read_bytes().splitlines()) if metrics.is_file() else 0}
    sample["processes"] = 1 + len(children)
    for name, of_role in (("trainer", [process]), ("workers", workers)):
        sample[f"{name} memory"] = sum(one.memory_info().rss for one in of_role)
        sample[f"{name} descriptors"] = sum(one.num_fds() for one in of_role)
        sample[f"{name} threads"] = sum(one.num_threads() for one in of_role)
    sample["checkpoints"] = _bytes(run_dir.glob("checkpoints/*/*"))
    sample["metrics"] = _bytes([metrics])
    sample["other files"] = _bytes(path for path in run_dir.iterdir() if path != metrics)
    sample["temporary files"] = _bytes(temporary.rglob("*"))
    return sample


def _bytes(paths: Iterable[Path]) -> int:
    return sum(path.stat().st_size for path in paths if path.is_file())


def quarter(rows: Sequence[Sample], number: int) -> list[Sample]:
    """Samples of a quarter of the steps, counted from 0."""
    last = max(row["step"] for row in rows)
    return [row for row in rows if last * number / 4 <= row["step"] < last * (number + 1) / 4]


FLAT = ("processes", "trainer descriptors", "trainer threads", "workers descriptors", "workers threads")
LINE = 3000  # bytes of a line of metrics.jsonl, at most


def test_a_long_run_takes_no_more_at_its_end(tmp_path, monkeypatch, capsys):
    """WebShop with two workers and a checkpoint every five steps."""
    run_dir, temporary = tmp_path / "run", tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    options = [part for setting in RUN for part in ("--set", setting)]
    options += ["--env", "webshop", "--method", "grpo", "--set", f"train.steps={STEPS}", "--run-dir", run_dir]
    program = Program("r3l.cli", "train", *options)
    rows = list(samples(psutil.Process(program.process.pid), run_dir, temporary))
    code, _, stderr = program.wait()
    assert code == 0, stderr
    early, late = quarter(rows, 1), quarter(rows, 3)
    median = {key: [statistics.median(row[key] for row in part) for part in (early, late)] for key in rows[0]}
    with capsys.disabled():
        ends = ", ".join(f"{key} {a:.0f} -> {b:.0f}" for key, (a, b) in median.items())
        print(f"\nattack: {STEPS} steps, medians of the second and of the last quarter: {ends}")
    for key in FLAT:
        assert median[key][0] == median[key][1], key
    for key in ("trainer memory", "workers memory", "checkpoints"):
        assert median[key][1] <= 1.05 * median[key][0], key
    assert rows[-1]["metrics"] <= LINE * STEPS and median["temporary files"] == [0, 0]
