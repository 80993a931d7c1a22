"""Digests of a folder's files, in the format of sha256sum: ``sha256sum --check SHA256SUMS`` reads them too."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

from typing_extensions import TypedDict

from r3l.core.errors import DataError
from r3l.files.json_files import read_json
from r3l.files.paths import cache_folder
from r3l.files.writing import write_json_atomic, write_text_atomic

SUMS = "SHA256SUMS"  # in a folder
BLOCK = 1 << 22  # bytes that are hashed at once; our choice
KEPT = 1 << 26  # bytes; digests of more are cached, since they take longer than a tenth of a second


class CachedDigest(TypedDict):
    """The cached digest of large files. ``files``: name, path, time and size of each."""

    files: list[list[str | int]]
    sha256: str


def write_digests(folder: Path, names: Iterable[str] | None = None) -> None:
    """Note what the files ``names`` of ``folder`` hold now; by default all of them."""
    chosen = (
        (path.name for path in folder.iterdir() if path.is_file() and path.name != SUMS) if names is None else names
    )
    write_text_atomic(folder / SUMS, "".join(f"{digest_of(folder / name)}  {name}\n" for name in sorted(chosen)))


def altered(folder: Path, expected: Iterable[str] = ()) -> list[str]:
    """What does not hold what was noted: files that differ or are gone, and those of ``expected`` without a note.

    ``[SHA256SUMS]`` where there are no notes, or no readable ones. [] where all is well.
    """
    try:
        lines = (folder / SUMS).read_text(encoding="utf-8").splitlines()
        noted = {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
    except (OSError, ValueError):
        return [SUMS]
    if not noted:
        return [SUMS]
    wrong = {n for n, digest in noted.items() if not (folder / n).is_file() or digest_of(folder / n) != digest}
    return sorted(wrong | set(expected) - set(noted))


def digest_of(path: Path) -> str:
    """The sha256 of a file's bytes, in hex. Raises OSError where it cannot be read."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_of_all(files: Mapping[str, Path]) -> str:
    """The sha256 over names and digests of ``files``, taken once for their times and sizes: in this
    process, of many bytes also on this machine. The times are those of inodes: copying and unpacking can
    set the others as they were.
    """
    stats = [(name, path.resolve(), path.stat()) for name, path in sorted(files.items())]
    return _digest_of_all(tuple((name, str(path), stat.st_ctime_ns, stat.st_size) for name, path, stat in stats))


@cache
def _digest_of_all(files: tuple[tuple[str, str, int, int], ...]) -> str:
    small = sum(size for *_, size in files) < KEPT
    place = hashlib.sha256("\n".join(path for _, path, _, _ in files).encode()).hexdigest()
    kept, key = cache_folder("digests") / f"{place}.json", [list(file) for file in files]
    with suppress(DataError):  # a cache that cannot be read either
        if not small and kept.is_file() and (known := read_json(kept, CachedDigest))["files"] == key:
            return str(known["sha256"])
    lines = "".join(f"{digest_of(Path(path))}  {name}\n" for name, path, _, _ in files)
    digest = hashlib.sha256(lines.encode()).hexdigest()
    if not small:
        with suppress(OSError):  # a cache that cannot be written costs time alone
            kept.parent.mkdir(parents=True, exist_ok=True)
            write_json_atomic(kept, {"files": key, "sha256": digest})
    return digest


def sha256_of(path: Path) -> str:
    """Hex digest of a file, or of a folder's files in name order, but for the digests noted of it."""
    digest = hashlib.sha256()
    files = [path] if path.is_file() else sorted(p for p in path.iterdir() if p.is_file() and p.name != SUMS)
    for file in files:
        digest.update(file.name.encode() + b"\0")
        with file.open("rb") as content:
            while block := content.read(BLOCK):  # weights may be larger than memory
                digest.update(block)
    return digest.hexdigest()
