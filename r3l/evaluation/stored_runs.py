"""Stored runs: where they are, the archive that they come in, and from which code they were made. Storing
them: r3l.evaluation.storing.

A checkout has this project's stored runs in results/stored. An installed package fetches them as the archive
``r3l-stored-VERSION.zip`` (`make dist`), one folder with the contents of results/stored that the wheel does
not have. The wheel that was made with it knows its address and digest. It is unpacked into
``$R3L_CACHE/stored/VERSION``.
"""

from __future__ import annotations

import asyncio
import hashlib
import lzma
import zipfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NotRequired

from typing_extensions import TypedDict

import r3l
from r3l.core.errors import ConfigError, DataError
from r3l.files.cleanup import remove_unfinished
from r3l.files.digests import file_sha256
from r3l.files.json_files import read_json
from r3l.files.locks import locked
from r3l.files.paths import RELEASE, STORED, cache_folder, is_checkout
from r3l.files.unpacking import LINES, bounded_lines, most
from r3l.files.writing import DISK, replacing
from r3l.runs.manifest import Manifest
from r3l.runs.provenance import is_dirty
from r3l.runs.run_dir import MANIFEST
from r3l.runs.run_paths import find_runs

TOP = f"r3l-stored-{r3l.__version__}"
ARCHIVE = f"{TOP}.zip"
PROBES = "probe"  # folder of results and of results/stored
ATTEMPTS = ".attempts.jsonl"  # suffix of a probe's attempts, next to its result
MADE = "`make dist` makes it in a clone"
# Bounds of an archive; our choice. results/stored has less than 100 MiB in 7,300 files.
LARGEST = 1 << 30  # bytes, packed or unpacked
FILES = 100_000
SECONDS = 3600.0  # of a download


class ProbeOrigin(TypedDict):
    """Keys of a probe's result file that are read here.

    ``attempts_sha256``: digest of the file of attempts before its compression.
    """

    commit: str | None
    attempts_sha256: NotRequired[str]


class ReleasedArchive(TypedDict):
    """build/release.json: the archive of stored runs that was made with a wheel (`make dist`)."""

    address: str
    sha256: str


def folder() -> Path:
    """The folder of stored runs: results/stored of a checkout, or one in the cache; it may not exist yet."""
    return STORED if is_checkout() else cache_folder("stored") / r3l.__version__


def stored_runs() -> Path:
    """The folder of stored runs: results/stored of a checkout, or one in the cache.

    Raises DataError, with the command to get them, if it does not exist.
    """
    if not folder().is_dir():
        how = "r3l stored fetch"
        if not RELEASE.is_file():
            how += f" {ARCHIVE} (a file or a URL; {MADE})"
        raise DataError(
            f"the stored runs are not here: a wheel has none. Get them: {how}. Or work in a checkout, which "
            "has them"
        )
    return folder()


def fetch(source: str | None = None) -> Path:
    """Unpack an archive of stored runs into :func:`folder`, which it replaces; return that folder.

    ``source``: a file or a URL, which is downloaded; by default the archive that was released with this
    wheel, whose digest the wheel knows. The old folder stays until the new one is complete. Raises DataError
    if the file is missing, cannot be downloaded, is no such archive or has another digest than the released
    one; ConfigError in a checkout.
    """
    if is_checkout():
        raise ConfigError(f"nothing to fetch: this checkout has the stored runs already, in {folder()}")
    target = folder()
    target.parent.mkdir(parents=True, exist_ok=True)
    with locked(target, wait=-1):
        remove_unfinished(target.parent, name=target.name)
        with replacing(target) as fresh:
            sha256 = None
            if source is None:
                if not RELEASE.is_file():
                    raise DataError(
                        f"this wheel names no address of its stored runs; give a file or a URL of {ARCHIVE} "
                        f"({MADE})"
                    )
                release = read_json(RELEASE, ReleasedArchive)
                source = release["address"]
                sha256 = release["sha256"]
            archive = _downloaded(source, fresh)
            if sha256:
                found = file_sha256(archive)
                if found != sha256:
                    raise DataError(
                        f"{source} has the SHA-256 {found[:12]}, not {sha256[:12]} as when this wheel was "
                        f"made: it is cut off or was replaced; get {ARCHIVE} where you trust it and give its "
                        "path"
                    )
            _unpack(archive, fresh)
            (fresh / ARCHIVE).unlink(missing_ok=True)  # if it was downloaded
            if not find_runs(fresh, may_be_none=True):
                raise DataError(f"{source} holds no runs under {TOP}/; get {ARCHIVE} again")
    return target


def _downloaded(source: str, scratch: Path) -> Path:
    """The file ``source``, or the file that is downloaded from this URL.

    Raises DataError for what is no regular file, and for a download beyond LARGEST or SECONDS.
    """
    if not source.lower().startswith(("http://", "https://")):
        if Path(source).exists() and not Path(source).is_file():  # a pipe or device may never end
            raise DataError(f"{source} is no regular file; give the path of {ARCHIVE}, or its URL")
        return Path(source)
    import httpx2

    path = scratch / ARCHIVE
    try:
        asyncio.run(_receive(source, path))
    except TimeoutError as error:
        raise DataError(
            f"{source} cannot be fetched (it takes longer than {SECONDS / 60:,.0f} minutes); download it "
            "another way and give its path"
        ) from error
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise DataError(
            f"{source} cannot be fetched ({error}); download it another way and give its path"
        ) from error
    return path


async def _receive(url: str, path: Path) -> None:
    """Download ``url`` into the file ``path``.

    Raises TimeoutError after SECONDS, httpx2's errors for a refusal and for more than LARGEST.
    """
    import httpx2

    # The deadline covers headers, redirects and bytes that unpack to nothing: each read alone may be short.
    async with (
        asyncio.timeout(SECONDS),
        httpx2.AsyncClient(follow_redirects=True) as client,
        client.stream("GET", url) as answer,
    ):
        answer.raise_for_status()
        size = 0
        with path.open("wb") as file:
            async for block in answer.aiter_bytes():
                size += file.write(block)
                if size > LARGEST:
                    raise httpx2.RequestError(f"it is larger than {LARGEST / 2**20:,.0f} MiB")


def _unpack(path: Path, into: Path) -> None:
    """Unpack the contents of the archive's folder.

    Raises DataError for other archives, and for one of more than FILES files or that unpacks to far more than
    its size or LARGEST; OSError if the disk is full.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            foreign = [name for name in archive.namelist() if not name.startswith(f"{TOP}/")]
            if foreign:
                raise DataError(
                    f"{path} holds {foreign[0]}, not the folder {TOP}/: it is not the archive of stored "
                    f"runs of r3l {r3l.__version__}, which is called {ARCHIVE}"
                )
            # The bound is one of the packed entries: anything may precede them in the file, even a hole.
            entries = archive.infolist()
            packed = min(sum(entry.compress_size for entry in entries), path.stat().st_size)
            if sum(entry.file_size for entry in entries) > min(most(packed), LARGEST):
                raise DataError(f"{path} unpacks to far more than its size; get it again")
            if len(entries) > FILES:
                raise DataError(f"{path} holds {len(entries):,} files, more than {FILES:,}; get it again")
            for entry in entries:
                entry.filename = entry.filename.removeprefix(f"{TOP}/")
                if entry.filename:
                    archive.extract(entry, into)
    except FileNotFoundError as error:
        raise DataError(f"there is no file {path}; give the path of {ARCHIVE}, or its URL") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError) as error:
        if isinstance(error, OSError) and error.errno in DISK:  # of a file that is written
            raise
        raise DataError(f"{path} is not a complete zip archive ({error}); get {ARCHIVE} again") from error


def probes_in(folder: Path) -> list[Path]:
    """The sorted result files of probes in ``folder``, a folder of results or the folder ``probe`` in one."""
    pattern = "*.json" if folder.resolve().name == PROBES else f"{PROBES}/*.json"
    return sorted(folder.glob(pattern))


def verify_probes(results: Sequence[Path]) -> tuple[int, int]:
    """Check that the file of attempts next to each probe's result has the digest that the result records.

    ``results``: the result files. Returns two numbers: of probes checked, and of probes made by r3l 0.1.0,
    which have no digest. Raises DataError naming every probe whose attempts differ, are missing or cannot be
    read.
    """
    wrong = []
    checked = 0
    for path in results:
        digest = read_json(path, ProbeOrigin).get("attempts_sha256")
        if digest is None:
            continue
        checked += 1
        # Attempts are plain lines where they were made, compressed in a store.
        plain = path.with_suffix(ATTEMPTS)
        kept = plain if plain.is_file() else path.with_suffix(f"{ATTEMPTS}.xz")
        try:
            found = hashlib.sha256()
            with kept.open("rb") if kept == plain else lzma.open(kept) as attempts:
                for line in bounded_lines(attempts, most(kept.stat().st_size, LINES), kept):
                    found.update(line)
            same = found.hexdigest() == digest
        except (OSError, EOFError, lzma.LZMAError) as error:
            wrong.append(
                f"{path}: its attempts, {kept.name}, cannot be read ({error}); restore them from a copy"
            )
            continue
        if not same:
            wrong.append(
                f"{path}: 'attempts_sha256' is not the digest of {kept.name}: one of them changed after the "
                "probe. Restore it from a copy, or delete both and run r3l probe again"
            )
    if wrong:
        raise DataError("\n".join(wrong))
    return checked, len(results) - checked


@dataclass(frozen=True)
class Origins:
    """The code and the pre-registration that runs were made from, as `r3l verify` reports them.

    ``dirty``: directories of runs made from a tree with uncommitted changes. ``plans``: number of runs by the
    SHA-256 of the pre-registration they were made under; None: before there was one.
    """

    dirty: list[Path]
    plans: dict[str | None, int]

    def as_json(self) -> dict[str, Any]:
        """The content of `r3l verify --json`."""
        plans = {sha256 or "none": runs for sha256, runs in self.plans.items()}
        return {"dirty": [str(path) for path in self.dirty], "preregistration": plans}

    def lines(self) -> list[str]:
        """The lines to print: runs of uncommitted code by cell, then the number of pre-registration texts."""
        lines = []
        if self.dirty:
            lines.append(f"{len(self.dirty)} were made from a tree with uncommitted changes:")
        seeds: dict[Path, list[str]] = defaultdict(list)
        for path in self.dirty:
            seeds[path.parent].append(path.name.removeprefix("seed"))
        lines += [f"  {cell}: seed {', '.join(numbers)}" for cell, numbers in seeds.items()]
        before = self.plans.get(None, 0)
        if before:
            lines.append(f"{before} were made before there was a pre-registration")
        versions = len({*self.plans} - {None})
        if versions:
            under = f"{versions} versions" if versions > 1 else "one version"
            lines.append(
                f"{sum(self.plans.values()) - before} were made under {under} of "
                "docs/preregistration.md, to which entries are added as experiments are planned; each run "
                "keeps the hash of the text it began under (--json counts them; git log -p "
                "docs/preregistration.md shows the changes)"
            )
        return lines


def origins(run_dirs: Sequence[Path]) -> Origins:
    """The code versions and pre-registrations that runs were made under, read from their manifests."""
    manifests = [read_json(run_dir / MANIFEST, Manifest) for run_dir in run_dirs]
    plans = Counter(manifest.get("preregistration_sha256") for manifest in manifests)
    dirty = [path for path, manifest in zip(run_dirs, manifests, strict=True) if is_dirty(manifest["commit"])]
    return Origins(dirty, dict(plans))
