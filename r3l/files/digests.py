"""Digests of a folder's files, in the format of sha256sum: ``sha256sum --check SHA256SUMS`` reads them too."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from r3l.files.writing import write_text_atomic

SUMS = "SHA256SUMS"  # in a folder
BLOCK = 1 << 22  # bytes that are hashed at once; our choice


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
