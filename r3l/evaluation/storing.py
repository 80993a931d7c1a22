"""Storing what is kept of finished runs, tunings and probes, such as in results/stored."""

from __future__ import annotations

import lzma
import shutil
from collections.abc import Sequence
from pathlib import Path

from r3l.config.tuning import FOLDER
from r3l.core.errors import DataError
from r3l.evaluation.episodes import Evaluation
from r3l.evaluation.stored_runs import ATTEMPTS, PROBES, ProbeOrigin, origins, verify_probes
from r3l.evaluation.tuning import TuningResult
from r3l.evaluation.verification import JSON_FILES, JSONL_FILES, verify, verify_all
from r3l.files.cleanup import remove_unfinished
from r3l.files.json_files import columns_path, read_json, read_jsonl, stored_variants, write_columns
from r3l.files.locks import locked
from r3l.files.paths import STORED
from r3l.files.writing import replacing, write_atomic, write_json_atomic, write_text_atomic
from r3l.runs import trajectory_log
from r3l.runs.manifest import Manifest
from r3l.runs.provenance import is_dirty
from r3l.runs.run_dir import EVALUATION, MANIFEST

WITH_TRAJECTORIES = "seed0"  # the runs whose trajectories are kept, for reading


def store(run_dirs: Sequence[Path], out: Path, *, replace: bool = False) -> list[Path]:
    """Copy finished runs to ``out``/TIER/ENV/MODEL/METHOD/seedN; return the folders written.

    Runs are verified before and after. JSON lines become compressed columns; checkpoints are left out;
    trajectories are kept of seed 0, for reading. A run that is stored already is left out. Before anything is
    written, raises DataError if a stored run of the same name has other settings, unless ``replace``; if one
    has the same settings and other scores: the same run ended differently, and the user has to choose one;
    and if ``out`` is this project's own store and a run was made from a tree with uncommitted changes.
    """
    dirty = origins(run_dirs).dirty if out.resolve() == STORED else []
    if dirty:
        raise DataError(
            f"{len(dirty)} of {len(run_dirs)} runs were made from a tree with uncommitted changes, the "
            f"first {dirty[0]}, so they cannot be repeated. Make them again from a clean clone, or keep "
            "them elsewhere (--out)"
        )
    verify_all(run_dirs)
    written = []
    with locked(out):
        targets = {source: out / Path(*source.absolute().parts[-5:]) for source in run_dirs}
        for target in targets.values():
            remove_unfinished(target.parent)
        missing = [source for source, target in targets.items() if not _is_stored(source, target)]
        others = [targets[source] for source in missing if (targets[source] / EVALUATION).is_file()]
        if others and not replace:
            raise DataError(
                f"{len(others)} stored runs have the same names as these and other settings, the first "
                f"{others[0]}; --replace deletes them, --out names another folder"
            )
        for source in missing:
            target = targets[source]
            # The run appears under its name only when it is complete, verified and signed.
            with replacing(target) as temporary:
                for name in JSON_FILES:
                    shutil.copyfile(source / name, temporary / name)
                manifest = read_json(temporary / MANIFEST, Manifest)
                if manifest.pop("own_folders", None):  # of this machine
                    write_json_atomic(temporary / MANIFEST, manifest)
                logs = [trajectory_log.FILE] if source.name == WITH_TRAJECTORIES else []
                for name in (*JSONL_FILES, *logs):
                    if stored_variants(source / name):  # zero-shot has no metrics
                        write_columns(columns_path(temporary / name), read_jsonl(source / name))
                verify(temporary)  # and sign
            written.append(target)
    return written


def store_tunings(results: Path, out: Path) -> list[Path]:
    """Copy the tunings below ``results`` to the same places below ``out``; return the files written.

    A tuning is a file tuning/TIER/ENV/METHOD.json. One that is already there with the same content is neither
    written nor returned.

    Before anything is written, raises DataError if ``out`` is this project's own store and a run of a tuning
    was made from a tree with uncommitted changes; RunDirectoryError if another process writes there.
    """
    found = sorted((results / FOLDER).glob("*/*/*.json"))
    for path in found:
        commits = []
        for rate in read_json(path, TuningResult)["rates"]:
            commits += [run["commit"] for run in rate["runs"]]
        if out.resolve() == STORED and any(map(is_dirty, commits)):
            raise DataError(
                f"{path} has runs that were made from a tree with uncommitted changes, so they cannot be "
                "repeated. Tune again in a clean clone, or keep it elsewhere (--out)"
            )
    return _copied(found, results, out)


def store_probes(results: Path, out: Path) -> list[Path]:
    """Copy the probes below ``results``, each with its compressed attempts, to the same places below ``out``.

    Returns the result files written. Before anything is written, raises DataError for a probe whose attempts
    are missing or have another digest than the one in its result. If ``out`` is this project's own store,
    also for a probe that was made from a tree with uncommitted changes. RunDirectoryError if another process
    writes there.
    """
    # Check all of them first, so that a refused probe leaves nothing half stored.
    found = sorted((results / PROBES).glob("*.json"))
    for path in found:
        if not path.with_suffix(ATTEMPTS).is_file():
            raise DataError(
                f"{path} has no {path.with_suffix(ATTEMPTS).name} next to it, so its measures cannot be "
                "computed again: run r3l probe again, or move it elsewhere"
            )
        if out.resolve() == STORED and is_dirty(read_json(path, ProbeOrigin)["commit"]):
            raise DataError(
                f"{path} was made from a tree with uncommitted changes, so it cannot be repeated. Probe "
                "again in a clean clone, or keep it elsewhere (--out)"
            )
    verify_probes(found)
    return _copied(found, results, out)


def _copied(files: Sequence[Path], results: Path, out: Path) -> list[Path]:
    """Copy ``files`` from below ``results`` to the same places below ``out``, a probe's with its attempts.

    Returns the files written, without those that are there already with the same content. Raises
    RunDirectoryError if another process writes there.
    """
    written = []
    with locked(out):
        for path in files:
            target = out / path.relative_to(results)
            remove_unfinished(target.parent)
            attempts = path.with_suffix(ATTEMPTS)  # a tuning has none
            kept = target.with_suffix(f"{ATTEMPTS}.xz")
            complete = kept.is_file() or not attempts.is_file()
            if complete and target.is_file() and target.read_bytes() == path.read_bytes():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            # The result goes last: a command that is killed between the two stores this probe again.
            if attempts.is_file():
                write_atomic(kept, lzma.compress(attempts.read_bytes()))
            write_text_atomic(target, path.read_text(encoding="utf-8"))
            written.append(target)
    return written


def _is_stored(source: Path, target: Path) -> bool:
    """True if this run is stored already, with the same scores. Raises DataError if it has other scores."""
    if not (target / EVALUATION).is_file():
        return False
    new = read_json(source / EVALUATION, Evaluation)
    old = read_json(target / EVALUATION, Evaluation)
    if new["fingerprint"] != old["fingerprint"]:
        return False
    if new["groups"] != old["groups"]:
        raise DataError(
            f"{target} holds a run of the same fingerprint as {source} with other scores; delete one of them"
        )
    return True
