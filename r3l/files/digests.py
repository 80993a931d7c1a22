"""Digests of a folder's files, in the format of sha256sum (``sha256sum --check SHA256SUMS``)."""

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

SUMS = "SHA256SUMS"  # name of the file with the digests of a folder
BLOCK = 1 << 22  # bytes read at once; our choice
KEPT = 1 << 26  # bytes; digests of more are cached, since they take longer than a tenth of a second


class CachedDigest(TypedDict):
    """The cached digest of large files. ``files``: name, path, change time (ns) and size (bytes) of each."""

    files: list[list[str | int]]
    sha256: str


def write_digests(folder: Path, names: Iterable[str] | None = None) -> None:
    """Write SHA256SUMS into ``folder``: digests of its files ``names``, by default of all directly in it.

    The file is replaced atomically. Raises OSError if one of ``names`` cannot be read.
    """
    if names is None:
        names = [path.name for path in folder.iterdir() if path.is_file() and path.name != SUMS]
    lines = [f"{file_sha256(folder / name)}  {name}\n" for name in sorted(names)]
    write_text_atomic(folder / SUMS, "".join(lines))


def recorded_digests(folder: Path) -> dict[str, str]:
    """The digests in a folder's SHA256SUMS by file name; {} if it is missing or cannot be read."""
    try:
        lines = (folder / SUMS).read_bytes().decode().splitlines()
        return {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
    except (OSError, ValueError):
        return {}


def altered(folder: Path, expected: Iterable[str] = ()) -> list[str]:
    """Names of files that do not have their digest in the folder's SHA256SUMS; [] if all files have it.

    Files that are missing, and ``expected`` files without a digest, are among them. Returns ``[SHA256SUMS]``
    if that file is missing, empty or cannot be read.
    """
    recorded = recorded_digests(folder)
    if not recorded:
        return [SUMS]
    wrong = set(expected) - set(recorded)
    for name, digest in recorded.items():
        try:
            same = file_sha256(folder / name) == digest
        except OSError:  # missing, or not a file
            same = False
        if not same:
            wrong.add(name)
    return sorted(wrong)


def file_sha256(path: Path) -> str:
    """The sha256 of a file's bytes, in hex. Raises OSError if it cannot be read."""
    with path.open("rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_of_all(files: Mapping[str, Path]) -> str:
    """The sha256, in hex, over names and digests of ``files`` in name order; a moved file has the same one.

    ``files``: name -> path. A digest is cached until the path, size or change time (ctime) of a file differs:
    in this process, and if the files have 64 MiB or more together also on disk. Raises OSError if a file is
    missing.
    """
    # The inode's change time: copying and unpacking can set the other times back.
    stats = [(name, path.resolve(), path.stat()) for name, path in sorted(files.items())]
    key = tuple((name, str(path), stat.st_ctime_ns, stat.st_size) for name, path, stat in stats)
    return _digest_of_all(key)


@cache
def _digest_of_all(files: tuple[tuple[str, str, int, int], ...]) -> str:
    """The digest over ``files``: name, path, change time (ns) and size (bytes) of each."""
    # The cache on disk is of use only if reading the files takes longer than reading the cache. It is valid
    # if all names, times and sizes are the same.
    small = sum(size for *_, size in files) < KEPT
    name_of_cache = hashlib.sha256("\n".join(path for _, path, _, _ in files).encode()).hexdigest()
    cached = cache_folder("digests") / f"{name_of_cache}.json"
    key: list[list[str | int]] = [list(file) for file in files]
    with suppress(DataError, OSError):  # a damaged or unreadable cache is written again
        if not small and cached.is_file() and (known := read_json(cached, CachedDigest))["files"] == key:
            return known["sha256"]

    lines = "".join(f"{file_sha256(Path(path))}  {name}\n" for name, path, _, _ in files)
    digest = hashlib.sha256(lines.encode()).hexdigest()
    if not small:
        with suppress(OSError):  # without a cache it only takes longer
            cached.parent.mkdir(parents=True, exist_ok=True)
            content: CachedDigest = {"files": key, "sha256": digest}
            write_json_atomic(cached, content)
    return digest


def digest_with_names(path: Path) -> str:
    """The sha256, in hex, over name and content of a file, or of each file directly in a folder.

    Since names count, it is not what ``sha256sum`` prints; that is :func:`file_sha256`. A folder's files are
    taken in name order, without SHA256SUMS. Raises OSError if ``path`` is missing.
    """
    digest = hashlib.sha256()
    files = [path] if path.is_file() else sorted(p for p in path.iterdir() if p.is_file() and p.name != SUMS)
    for file in files:
        digest.update(file.name.encode() + b"\0")
        with file.open("rb") as content:
            while block := content.read(BLOCK):  # weights may not fit into memory
                digest.update(block)
    return digest.hexdigest()
