"""JSON, and JSON lines that a killed writer may leave torn."""

from __future__ import annotations

import gzip
import io
import json
import logging
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from r3l.core.errors import DataError
from r3l.files.columns import SUFFIX, columns_path, read_columns
from r3l.files.shapes import check_lines, check_whole
from r3l.files.unpacking import most, unpacked
from r3l.files.writing import write_atomic

log = logging.getLogger(__name__)


def read_json(path: Path, shape: Any = None) -> Any:
    """The JSON in ``path``. Raises DataError naming the file when it is missing, damaged, or not of ``shape``, a type
    of r3l.files.shapes; by default that of files of this name.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing; is this a finished run directory?") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not valid JSON ({error}); delete it and run the command again") from error
    check_whole(path, content, shape)
    return content


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSON-lines file (``.gz``: compressed), or of what is kept in its place (``kept_as``).

    [] where there is nothing. A torn last line is skipped with a warning, any other is a DataError, and so is a line of
    another shape than files of this name have (r3l.files.shapes).
    """
    path = next(iter(kept_as(path)), path)
    rows: list[dict[str, Any]]
    if path.name.endswith(SUFFIX):
        rows = read_columns(path)
        check_lines(path, rows)
        return rows
    rows = []
    damage: Exception | None = None
    for line in _lines(path):
        if damage is not None:
            raise DataError(f"{path}, line {len(rows) + 1}: not valid JSON ({damage})") from damage
        try:
            rows.append(json.loads(line))
        except (ValueError, RecursionError) as error:
            damage = error
    if damage is not None:
        log.warning("%s: the last line is torn (the writer was killed); skipped", path)
    check_lines(path, rows)
    return rows


def kept_as(path: Path) -> list[Path]:
    """Those of these files that exist, the one to read first: lines, columns (stored), compressed (by r3l 0.1.0)."""
    places = (path, columns_path(path), path.with_name(f"{path.name}.gz"))
    return [place for place in places if place.is_file()]


def append_jsonl(path: Path, row: Mapping[str, Any]) -> None:
    with path.open("ab") as file:
        file.write(_line(path, row))


def rewrite_jsonl(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Replace all lines at once: the bytes that appending them one by one would leave."""
    write_atomic(path, b"".join(_line(path, row) for row in rows))


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


def _line(path: Path, row: Mapping[str, Any]) -> bytes:
    """A line of JSON; in a ``.gz`` file a gzip member of its own, without a date: equal content is equal bytes."""
    line = json.dumps(row, sort_keys=True).encode() + b"\n"
    return gzip.compress(line, mtime=0) if path.suffix == ".gz" else line
