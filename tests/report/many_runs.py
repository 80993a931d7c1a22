"""Run as a program: a folder of many runs, and the CPU seconds that commands take to read it.

``python tests/report/many_runs.py FOLDER [RUNS]`` makes FOLDER/results/nano if it is missing: the stored nano runs,
and further seeds of each (method, environment) made from them, RUNS together (5,000). They pass `r3l verify`. Then it
prints what each command takes, in seconds of one core: other processes do not count. First without
FOLDER/cache/columns, then with the columns that the first call kept there.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from r3l.config import Run, validate
from r3l.evaluation.episodes import scores
from r3l.evaluation.verification import sign
from r3l.files import json_files
from r3l.files.json_files import columns_path, read_json, read_jsonl, write_columns
from r3l.files.paths import ROOT, STORED
from r3l.files.writing import write_json_atomic
from r3l.runs.metrics import COLLECT_SECONDS
from r3l.runs.run_dir import EPISODES, EVALUATION, MANIFEST, METRICS, RESULT
from r3l.runs.run_paths import find_runs

RUNS = 5000
COMMANDS = [
    ["table", "table1", "--results", "results"],
    ["table", "claims", "--results", "results"],
    ["table", "budget", "--results", "results"],
    ["compare", "r3l", "--against", "grpo", "--offline", "--stored", "results"],
    ["compare", "r3l", "--against", "all", "--offline", "--stored", "results"],
    ["report", "--results", "results"],
    ["run", "status", "--grid", "full", "--seed", ",".join(map(str, range(64)))],
]


def write_many_runs(results: Path, runs: int) -> None:
    """Fill the folder ``results`` with ``runs`` runs: those of results/stored/nano and further seeds of them."""
    cells: dict[Path, list[Path]] = {}
    for evaluation in find_runs(STORED / "nano"):
        cells.setdefault(evaluation.parent.parent, []).append(evaluation.parent)
    shutil.copytree(STORED / "nano", results / "nano")
    missing = runs - sum(map(len, cells.values()))
    for place, (cell, folders) in enumerate(cells.items()):
        known = [_StoredRun.read(folder) for folder in folders]
        first = 1 + max(int(folder.name.removeprefix("seed")) for folder in folders)
        share = missing // len(cells) + (place < missing % len(cells))
        for k in range(share):
            target = results / cell.relative_to(STORED) / f"seed{first + k}"
            _write_seed(known[k % len(known)], known[(k + 1) % len(known)].episodes, first + k, target)


@dataclass(frozen=True)
class _StoredRun:
    manifest: dict[str, Any]
    result: dict[str, Any]
    evaluation: dict[str, Any]
    metrics: list[dict[str, Any]]
    episodes: list[dict[str, Any]]

    @classmethod
    def read(cls, folder: Path) -> _StoredRun:
        records = (read_json(folder / name) for name in (MANIFEST, RESULT, EVALUATION))
        return cls(*records, *(read_jsonl(folder / name) for name in (METRICS, EPISODES)))


def _write_seed(run: _StoredRun, others: Sequence[dict[str, Any]], seed: int, target: Path) -> None:
    """Write a run of ``seed``: the training of ``run``, and its test episodes, some of them from ``others``."""
    target.mkdir()
    settings = run.manifest["run"] | {"seed": seed}
    fingerprint = validate(Run, settings, str(target)).fingerprint(run.manifest["inputs"])
    write_json_atomic(target / MANIFEST, run.manifest | {"run": settings, "fingerprint": fingerprint})
    identity = {"seed": seed, "fingerprint": fingerprint}
    write_json_atomic(target / RESULT, run.result | identity)
    if run.metrics:  # no two trainings take the same seconds
        first, *rest = run.metrics
        changed = first | {COLLECT_SECONDS: first[COLLECT_SECONDS] + seed}
        write_columns(columns_path(target / METRICS), [changed, *rest])
    both = zip(run.episodes, others, strict=True)
    episodes = [two[k // (1 + seed % 7) % 2] for k, two in enumerate(both)]
    write_columns(columns_path(target / EPISODES), episodes)
    stops = Counter(episode["stop_reason"] for episode in episodes)
    scored = {"groups": scores(episodes), "stops": stops}
    write_json_atomic(target / EVALUATION, run.evaluation | identity | scored)
    sign(target)


def cpu_seconds(command: Sequence[str], folder: Path) -> float:
    """Seconds of a core, in user and system mode, that ``r3l`` and its children take in ``folder``."""

    def used() -> float:
        of_children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return of_children.ru_utime + of_children.ru_stime

    before = used()
    cache = str((folder / "cache").absolute())
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "R3L_CACHE": cache}
    program = [sys.executable, "-m", "r3l.cli", *command]
    done = subprocess.run(program, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return used() - before


def main() -> None:
    folder, *runs = sys.argv[1:]
    results = Path(folder, "results")
    json_files.FILTERS[0]["preset"] = 0  # written in a tenth of the time, and read as fast
    if not results.is_dir():
        write_many_runs(results, int(*runs) if runs else RUNS)
    print(f"{len(find_runs(results))} runs in {results}")
    for command in COMMANDS:
        shutil.rmtree(Path(folder, "cache", "columns"), ignore_errors=True)
        first, again = (cpu_seconds(command, Path(folder)) for _ in range(2))
        print(f"{first:6.1f} s, then {again:6.1f} s  r3l {' '.join(command)[:90]}", flush=True)
    page = results / "report.html"
    print(f"{page.stat().st_size / 1e6:6.1f} MB {page}")


if __name__ == "__main__":
    main()
