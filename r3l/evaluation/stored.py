"""Stored runs: what is kept of a finished run, and the proof that its numbers are those of its raw lines."""

from __future__ import annotations

import gzip
import os
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from r3l.core.errors import DataError
from r3l.core.files import read_json, read_jsonl
from r3l.evaluation.evaluate import scores
from r3l.runs import trajectory_log
from r3l.runs.metrics import totals
from r3l.runs.result import final_scores

WHOLE = ("manifest.json", "result.json", "evaluation.json")
LINES = ("metrics.jsonl", "episodes.jsonl")  # kept compressed
READ = "seed0"  # the runs whose trajectories are kept


def store(run_dirs: Sequence[Path], results: Path, out: Path) -> list[Path]:
    """Copy finished runs from below ``results`` to the same places below ``out``; the folders written.

    Lines are compressed, checkpoints left out, trajectories kept of seed 0 (they are for reading). A stored run of
    another fingerprint is replaced. Raises DataError where a stored run of the same fingerprint has other scores: the
    same run ended differently, and one has to be chosen.
    """
    written = []
    for source in run_dirs:
        verify(source)
        target = out / source.relative_to(results)
        if _stands(source, target):
            continue
        temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        _copy(source, temporary)
        shutil.rmtree(target, ignore_errors=True)
        temporary.rename(target)
        written.append(target)
    return written


def _stands(source: Path, target: Path) -> bool:
    """Whether this very run is stored already."""
    if not (target / "evaluation.json").is_file():
        return False
    new, old = read_json(source / "evaluation.json"), read_json(target / "evaluation.json")
    if new["fingerprint"] != old["fingerprint"]:
        return False
    if new["groups"] != old["groups"]:
        raise DataError(
            f"{target} holds a run of the same fingerprint as {source} with other scores; delete one of them"
        )
    return True


def _copy(source: Path, target: Path) -> None:
    for name in WHOLE:
        shutil.copyfile(source / name, target / name)
    if source.name == READ and (source / trajectory_log.FILE).is_file():
        shutil.copyfile(source / trajectory_log.FILE, target / trajectory_log.FILE)
    for name in LINES:
        lines = source / name
        if lines.is_file():  # zero-shot has no metrics
            (target / f"{name}.gz").write_bytes(gzip.compress(lines.read_bytes(), mtime=0))


def verify(run_dir: Path) -> None:
    """Compute a run's scores, stops, budget and final means again from its raw lines.

    Raises DataError naming the first file and key that differs.
    """
    evaluation, result = read_json(run_dir / "evaluation.json"), read_json(run_dir / "result.json")
    manifest = read_json(run_dir / "manifest.json")
    episodes, metrics = read_jsonl(run_dir / "episodes.jsonl"), read_jsonl(run_dir / "metrics.jsonl")
    stops = Counter(e["stop_reason"] for e in episodes)
    _same(run_dir / "evaluation.json", "fingerprint", evaluation["fingerprint"], manifest["fingerprint"])
    _same(run_dir / "result.json", "fingerprint", result["fingerprint"], manifest["fingerprint"])
    _same(run_dir / "evaluation.json", "episodes", evaluation["episodes"], len(episodes))
    _same(run_dir / "evaluation.json", "groups", evaluation["groups"], scores(episodes))
    _same(run_dir / "evaluation.json", "stops", evaluation["stops"], dict(stops))
    _same(run_dir / "result.json", "steps", result["steps"], len(metrics))
    _same(run_dir / "result.json", "budget", result["budget"], dict(totals(metrics)))
    _same(run_dir / "result.json", "final", result["final"], final_scores(metrics))


def _same(path: Path, key: str, stated: Any, computed: Any) -> None:
    if stated != computed:
        raise DataError(
            f"{path}: {key!r} is {_short(stated)}, but the run's raw lines give {_short(computed)}; one of the files "
            "was changed: restore it (git checkout), or evaluate the run again"
        )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 200 else text[:200] + "..."
