"""Stored runs: what is kept of a finished run, where it lies, and what its manifest says of the code that made it.

A checkout has this project's own in results/stored; an installed package gets them as the archive
``r3l-stored-VERSION.zip`` (`make dist`), one folder of its own name: results/stored without what the wheel has already.
The wheel that was made with it knows its address and digest. It is unpacked into ``$R3L_CACHE/stored/VERSION``.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import zipfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import r3l
from r3l.config.tuning import FOLDER
from r3l.core.errors import ConfigError, DataError
from r3l.files.columns import columns_path, write_columns
from r3l.files.digests import digest_of
from r3l.files.json_files import read_json, read_jsonl
from r3l.files.paths import RELEASE, STORED, cache_folder, is_checkout
from r3l.files.shapes import Release, Tuning
from r3l.files.unpacking import most
from r3l.files.writing import write_text_atomic
from r3l.runs.provenance import is_dirty, preregistration_sha256
from r3l.runs.run_dir import EVALUATION, MANIFEST
from r3l.runs.run_paths import find_runs

TOP = f"r3l-stored-{r3l.__version__}"
ARCHIVE = f"{TOP}.zip"
MADE = "`make dist` makes it in a clone"
READ = "seed0"  # the runs whose trajectories are kept


def folder() -> Path:
    """Where stored runs lie, or would."""
    return STORED if is_checkout() else cache_folder("stored") / r3l.__version__


def stored_runs() -> Path:
    """Where stored runs lie. Raises DataError where nobody has fetched them."""
    if not folder().is_dir():
        how = "r3l stored fetch" if RELEASE.is_file() else f"r3l stored fetch {ARCHIVE} (a file or a URL; {MADE})"
        raise DataError(
            f"the stored runs are not here: a wheel holds none. Get them: {how}. Or work in a checkout, which has them"
        )
    return folder()


def fetch(source: str | None = None) -> Path:
    """Unpack the archive ``source``, a file or a URL, by default the one that was released with this wheel, which must
    have the digest that the wheel knows; where its runs lie now.

    Raises DataError for another file, ConfigError in a checkout; what was there stays until the new runs are whole.
    """
    if is_checkout():
        raise ConfigError(f"this is a checkout, which has the stored runs already: {folder()}; nothing to fetch")
    target = folder()
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetch.") as scratch:
        source, sha256 = (source, None) if source else _released()
        archive = _local(source, Path(scratch))
        if sha256 and (found := digest_of(archive)) != sha256:
            raise DataError(
                f"{source} has the SHA-256 {found[:12]}, not {sha256[:12]} as when this wheel was made: it is cut off "
                f"or was replaced; get {ARCHIVE} where you trust it and give its path"
            )
        _unpack(archive, Path(scratch))
        fresh = Path(scratch) / TOP
        if not find_runs(fresh, may_be_none=True):
            raise DataError(f"{source} holds no runs under {TOP}/; get {ARCHIVE} again")
        if target.exists():
            os.replace(target, Path(scratch) / "before")
        os.replace(fresh, target)
    return target


def _released() -> tuple[str, str]:
    """Address and SHA-256 of the archive that was made with this wheel."""
    if not RELEASE.is_file():
        raise DataError(f"this wheel names no address of its stored runs; give a file or a URL of {ARCHIVE} ({MADE})")
    release = read_json(RELEASE, Release)
    return release["address"], release["sha256"]


def _local(source: str, scratch: Path) -> Path:
    """``source`` itself, or what lies at the URL."""
    if not source.startswith(("http://", "https://")):
        return Path(source)
    import httpx2

    path = scratch / ARCHIVE
    try:
        with httpx2.stream("GET", source, follow_redirects=True) as answer, path.open("wb") as file:
            answer.raise_for_status()
            for block in answer.iter_bytes():
                file.write(block)
    except httpx2.HTTPError as error:
        raise DataError(f"{source} cannot be fetched ({error}); download it otherwise and give its path") from error
    return path


def _unpack(path: Path, into: Path) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            if foreign := [name for name in archive.namelist() if not name.startswith(f"{TOP}/")]:
                raise DataError(
                    f"{path} holds {foreign[0]}, not the folder {TOP}/: it is not the archive of stored runs of r3l "
                    f"{r3l.__version__}, which is called {ARCHIVE}"
                )
            if sum(entry.file_size for entry in archive.infolist()) > most(path.stat().st_size):
                raise DataError(f"{path} unpacks to far more than its size; get it again")
            archive.extractall(into)
    except FileNotFoundError as error:
        raise DataError(f"there is no file {path}; give the path of {ARCHIVE}, or its URL") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError) as error:
        raise DataError(f"{path} is not a whole zip archive ({error}); get {ARCHIVE} again") from error


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
    from r3l.evaluation.verification import sign, verify_all  # needs what playing needs; where runs lie, many ask

    verify_all(run_dirs)
    written = []
    for source in run_dirs:
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
    for path in found:
        rates = read_json(path, Tuning)["rates"]
        if out.resolve() == STORED and any(is_dirty(run["commit"]) for rate in rates for run in rate["runs"]):
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
    if not (target / EVALUATION).is_file():
        return False
    new, old = read_json(source / EVALUATION), read_json(target / EVALUATION)
    if new["fingerprint"] != old["fingerprint"]:
        return False
    if new["groups"] != old["groups"]:
        raise DataError(
            f"{target} holds a run of the same fingerprint as {source} with other scores; delete one of them"
        )
    return True


def _copy(source: Path, target: Path) -> None:
    from r3l.evaluation.verification import LINES, WHOLE
    from r3l.runs import trajectory_log

    for name in WHOLE:
        shutil.copyfile(source / name, target / name)
    for name in (*LINES, trajectory_log.FILE) if source.name == READ else LINES:
        if (source / name).is_file():  # zero-shot has no metrics
            write_columns(columns_path(target / name), read_jsonl(source / name))


@dataclass(frozen=True)
class Origins:
    """``dirty``: run directories whose code was in no commit; ``plans``: runs by the pre-registration's sha256 (None:
    there was none)."""

    dirty: list[Path]
    plans: dict[str | None, int]

    def as_json(self) -> dict[str, Any]:
        plans = {sha256 or "none": runs for sha256, runs in self.plans.items()}
        return {"dirty": [str(path) for path in self.dirty], "preregistration": plans}

    def lines(self) -> list[str]:
        seeds: dict[Path, list[str]] = defaultdict(list)
        for path in self.dirty:
            seeds[path.parent].append(path.name.removeprefix("seed"))
        dirty = [f"  {cell}: seed {', '.join(numbers)}" for cell, numbers in seeds.items()]
        heading = [f"{len(self.dirty)} were made from a tree with uncommitted changes:"] if dirty else []
        return [*heading, *dirty, *(f"{runs} {_plan(sha256)}" for sha256, runs in self.plans.items())]


def origins(run_dirs: Sequence[Path]) -> Origins:
    manifests = [read_json(run_dir / MANIFEST) for run_dir in run_dirs]
    plans = Counter(manifest.get("preregistration_sha256") for manifest in manifests)
    dirty = [path for path, manifest in zip(run_dirs, manifests, strict=True) if is_dirty(manifest["commit"])]
    return Origins(dirty, dict(plans))


def _plan(sha256: str | None) -> str:
    if sha256 is None:
        return "were made before there was a pre-registration"
    same = sha256 == preregistration_sha256()
    return f"were made under docs/preregistration.md {'as it is' if same else 'as it once was'} ({sha256[:12]})"
