"""Files: written whole or not at all; JSON lines that a killed writer may leave torn; digests."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import logging
import os
import shutil
import tempfile
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from r3l.core.errors import DataError, RunDirectoryError

log = logging.getLogger(__name__)
SUMS = "SHA256SUMS"  # in a folder: see r3l.core.digests
RATIO = 200  # of unpacked to packed bytes; our choice (the most of 681 stored files is 32)
FLOOR = 1 << 20  # bytes that anything may unpack to
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
def writable(path: Path, make: bool = True) -> Iterator[None]:
    """Turn a refused write into an error that names the file and the fix; by default its folder is made."""
    try:
        if make:
            path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise RunDirectoryError(f"{path} cannot be written ({error.strerror}); choose another with --out") from error


def check_writable(path: Path) -> None:
    """Raises RunDirectoryError where nothing can be written at ``path``; it leaves nothing there."""
    there = next(folder for folder in (path.absolute().parent, *path.absolute().parents) if folder.exists())
    with writable(path, make=False), tempfile.TemporaryFile(dir=path if path.is_dir() else there):
        pass


def check_room(folder: Path, needed: int) -> None:
    """Raises RunDirectoryError where the disk of ``folder`` has not ``needed`` bytes free."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise RunDirectoryError(
            f"{folder} has no room: {needed / 2**20:,.0f} MiB are needed, {free / 2**20:,.0f} MiB are free. Free some; "
            "the same command goes on"
        )


def read_json(path: Path) -> Any:
    """The JSON in ``path``. Raises DataError naming the file when it is missing or damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing; is this a finished run directory?") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not valid JSON ({error}); delete it and run the command again") from error


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSON-lines file (``.gz``: compressed; looked for where the plain one is not there).

    [] where there is none. A torn last line is skipped with a warning, any other is a DataError.
    """
    rows: list[dict[str, Any]] = []
    damage: Exception | None = None
    for line in _lines(_packed(path)):
        if damage is not None:
            raise DataError(f"{path}, line {len(rows) + 1}: not valid JSON ({damage})") from damage
        try:
            rows.append(json.loads(line))
        except (ValueError, RecursionError) as error:
            damage = error
    if damage is not None:
        log.warning("%s: the last line is torn (the writer was killed); skipped", path)
    return rows


def _packed(path: Path) -> Path:
    packed = path.with_name(f"{path.name}.gz")
    return packed if packed.is_file() and not path.is_file() else path


def _lines(path: Path) -> Iterator[bytes]:
    """The lines of a file. The last one is empty where its gzip member breaks off."""
    content = path.read_bytes() if path.is_file() else b""
    if path.suffix != ".gz":
        yield from io.BytesIO(content)
        return
    count, left = 0, most(len(content))
    while content:
        member = zlib.decompressobj(wbits=31)  # 31: with gzip's header
        try:
            text = unpacked(content, member, left, path)
        except zlib.error as error:
            raise DataError(f"{path} is damaged after line {count} ({error}); delete it") from error
        if not member.eof:
            yield b""
            return
        for line in io.BytesIO(text):
            count += 1
            yield line
        left -= len(text)
        content = member.unused_data


class Decompressor(Protocol):
    """Of zlib or lzma."""

    @property
    def eof(self) -> bool:
        """Whether the end has been reached."""
        ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        """At most so many bytes."""
        ...


def most(packed: int) -> int:
    """Bytes that a file or text of ``packed`` bytes may unpack to."""
    return FLOOR + RATIO * packed


def unpacked(packed: bytes, decompressor: Decompressor, limit: int, name: object) -> bytes:
    """What ``packed`` begins with, as far as it goes. Raises DataError before it takes more than ``limit`` bytes.

    The decompressor's own errors are its caller's.
    """
    content = decompressor.decompress(packed, limit + 1)
    if len(content) > limit:
        raise _bomb(name, limit)
    return content


def bounded_lines(stream: io.BufferedIOBase, limit: int, name: object) -> Iterator[bytes]:
    """The lines of a decompressing ``stream``. Raises DataError before they take more than ``limit`` bytes in all."""
    left = limit
    while line := stream.readline(left + 1):
        left -= len(line)
        if left < 0:
            raise _bomb(name, limit)
        yield line


def _bomb(name: object, limit: int) -> DataError:
    return DataError(f"{name} unpacks to more than {limit / 2**20:.0f} MiB, which no whole file does; get it anew")


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
