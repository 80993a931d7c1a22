"""Stored runs: what is kept of a finished run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from r3l.config.tuning import FOLDER
from r3l.core.errors import DataError
from r3l.evaluation.provenance import origins
from r3l.evaluation.verification import LINES, WHOLE, sign, verify
from r3l.files.columns import columns_path, write_columns
from r3l.files.json_files import read_json, read_jsonl
from r3l.files.paths import STORED
from r3l.files.writing import write_text_atomic
from r3l.runs import trajectory_log
from r3l.runs.provenance import is_dirty

READ = "seed0"  # the runs whose trajectories are kept


def store(run_dirs: Sequence[Path], results: Path, out: Path) -> list[Path]:
    """Copy finished runs from below ``results`` to the same places below ``out``; the folders written.

    Lines become compressed columns, checkpoints are left out, trajectories kept of seed 0 (they are for reading). A
    stored run of another fingerprint is replaced. Raises DataError where a stored run of the same fingerprint has other
    scores: the same run ended differently, and one has to be chosen; and before anything is written, where ``out`` is
    this project's own store and a run was made from a tree with uncommitted changes.
    """
    if out.resolve() == STORED and (dirty := origins(run_dirs).dirty):
        raise DataError(
            f"{len(dirty)} of {len(run_dirs)} runs were made from a tree with uncommitted changes, the first "
            f"{dirty[0]}: nobody could repeat them. Make them again from a clean clone, or keep them elsewhere (--out)"
        )
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
        sign(temporary)
        shutil.rmtree(target, ignore_errors=True)
        temporary.rename(target)
        written.append(target)
    return written


def store_tunings(results: Path, out: Path) -> list[Path]:
    """Copy the tunings below ``results`` to the same places below ``out``; the files written.

    Raises DataError, before anything is written, where ``out`` is this project's own store and a run of one was made
    from a tree with uncommitted changes.
    """
    found = sorted((results / FOLDER).glob("*/*/*.json"))
    for path in found if out.resolve() == STORED else []:
        if any(is_dirty(run["commit"]) for rate in read_json(path)["rates"] for run in rate["runs"]):
            raise DataError(
                f"{path} has runs that were made from a tree with uncommitted changes: nobody could repeat them. Tune "
                "again in a clean clone, or keep it elsewhere (--out)"
            )
    written = []
    for path in found:
        target = out / path.relative_to(results)
        if not target.is_file() or target.read_bytes() != path.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            write_text_atomic(target, path.read_text(encoding="utf-8"))
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
    for name in (*LINES, trajectory_log.FILE) if source.name == READ else LINES:
        if (source / name).is_file():  # zero-shot has no metrics
            write_columns(columns_path(target / name), read_jsonl(source / name))
