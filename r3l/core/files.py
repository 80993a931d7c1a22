"""Files: written whole or not at all; JSON lines that a killed writer may leave torn; digests."""

from __future__ import annotations

import gzip
import hashlib
import json
import logging
import os
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from r3l.core.errors import DataError, RunDirectoryError

log = logging.getLogger(__name__)
SUMS = "SHA256SUMS"  # in a folder: see r3l.core.digests
BLOCK = 1 << 22  # bytes that are hashed at once; our choice


def write_atomic(path: Path, content: bytes) -> None:
    """Write and rename, so that a reader sees the old file or the whole new one, also where the writer is killed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text_atomic(path: Path, text: str) -> None:
    """As :func:`write_atomic`, in UTF-8."""
    write_atomic(path, text.encode())


def write_json_atomic(path: Path, content: Any) -> None:
    """Sorted keys and a final newline: equal content is equal bytes."""
    write_text_atomic(path, json.dumps(content, indent=2, sort_keys=True) + "\n")


@contextmanager
def writable(path: Path) -> Iterator[None]:
    """Turn a refused write into an error that names the file and the fix."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise RunDirectoryError(f"{path} cannot be written ({error.strerror}); choose another with --out") from error


def read_json(path: Path) -> Any:
    """The JSON in ``path``. Raises DataError naming the file when it is missing or damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing; is this a finished run directory?") from error
    except ValueError as error:
        raise DataError(f"{path} is not valid JSON ({error}); delete it and run the command again") from error


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSON-lines file (``.gz``: compressed; looked for where the plain one is not there).

    [] where there is none. A torn last line is skipped with a warning, any other is a DataError.
    """
    lines, torn = _lines(_packed(path))
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(lines, start=1):
        try:
            rows.append(json.loads(line))
        except ValueError as error:
            if number < len(lines):
                raise DataError(f"{path}, line {number}: not valid JSON ({error})") from error
            torn = True
    if torn:
        log.warning("%s: the last line is torn (the writer was killed); skipped", path)
    return rows


def _packed(path: Path) -> Path:
    packed = path.with_name(f"{path.name}.gz")
    return packed if packed.is_file() and not path.is_file() else path


def _lines(path: Path) -> tuple[list[bytes], bool]:
    """The lines of a file, and whether its last gzip member breaks off (that member is left out)."""
    content = path.read_bytes() if path.is_file() else b""
    if path.suffix != ".gz":
        return content.splitlines(), False
    lines: list[bytes] = []
    while content:
        member = zlib.decompressobj(wbits=31)  # 31: with gzip's header
        try:
            text = member.decompress(content)
        except zlib.error as error:
            raise DataError(f"{path} is damaged after line {len(lines)} ({error}); delete it") from error
        if not member.eof:
            return lines, True
        lines += text.splitlines()
        content = member.unused_data
    return lines, False


def append_jsonl(path: Path, row: Mapping[str, Any]) -> None:
    """Add one line."""
    with path.open("ab") as file:
        file.write(_line(path, row))


def rewrite_jsonl(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Replace all lines at once: the bytes that appending them one by one would leave."""
    write_atomic(path, b"".join(_line(path, row) for row in rows))


def _line(path: Path, row: Mapping[str, Any]) -> bytes:
    """A line of JSON; in a ``.gz`` file a gzip member of its own, without a date: equal content is equal bytes."""
    line = json.dumps(row, sort_keys=True).encode() + b"\n"
    return gzip.compress(line, mtime=0) if path.suffix == ".gz" else line


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
