"""JSON and JSON-lines files, checked against a pydantic model when they are read.

A model is defined where its file is written: a ``TypedDict``, or any other type that pydantic can validate.
Values are returned as they were read, so a reader may rely on the keys and types of the model; further keys
are allowed.
"""

from __future__ import annotations

import gzip
import io
import json
import logging
import zlib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeVar, overload

from pydantic import Field, TypeAdapter, ValidationError

from r3l.core.errors import DataError
from r3l.core.text import shown
from r3l.files import unpacking
from r3l.files.columns import SUFFIX, columns_path, read_columns
from r3l.files.unpacking import most, unpacked
from r3l.files.writing import write_atomic

log = logging.getLogger(__name__)
T = TypeVar("T")
Number = Annotated[float, Field(allow_inf_nan=False)]  # an int is one too, and stays an int


@overload
def read_json(path: Path) -> Any: ...


@overload
def read_json(path: Path, model: type[T]) -> T: ...


def read_json(path: Path, model: Any = Any) -> Any:
    """The content of a JSON file. Raises DataError naming the file if it is missing, damaged, or not of
    ``model``.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing; is this a finished run directory?") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not valid JSON ({error}); delete it and run the command again") from error
    return checked(content, model, str(path))


@overload
def read_jsonl(path: Path) -> list[dict[str, Any]]: ...


@overload
def read_jsonl(path: Path, model: type[T]) -> list[T]: ...


def read_jsonl(path: Path, model: Any = dict[str, Any]) -> list[Any]:
    """The lines of a JSON-lines file (``.gz``: compressed) or its stored variant; [] if none.

    A torn last line, left by a killed writer, is skipped with a warning. Any other damaged line is a
    DataError, and so is a line that is not of ``model``.
    """
    path = next(iter(stored_variants(path)), path)
    rows: list[Any]
    if path.name.endswith(SUFFIX):
        rows = read_columns(path)
    else:
        rows = []
        damage: Exception | None = None
        for line in _lines(path):
            # A damaged line is an error as soon as another one follows: only the last one can be torn.
            if damage is not None:
                raise DataError(f"{path}, line {len(rows) + 1}: not valid JSON ({damage})") from damage
            try:
                rows.append(json.loads(line))
            except (ValueError, RecursionError) as error:
                damage = error
        if damage is not None:
            log.warning("%s: the last line is torn (the writer was killed); skipped", path)
    for number, row in enumerate(rows, 1):
        checked(row, model, f"{path}, line {number}")
    return rows


def stored_variants(path: Path) -> list[Path]:
    """Existing variants of a JSON-lines file, preferred first: lines, columns (stored), compressed (by r3l
    0.1.0).
    """
    variants = (path, columns_path(path), path.with_name(f"{path.name}.gz"))
    return [variant for variant in variants if variant.is_file()]


def append_jsonl(path: Path, row: Mapping[str, Any]) -> None:
    with path.open("ab") as file:
        file.write(_line(path, row))


def rewrite_jsonl(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Replace all lines at once, by the bytes that appending them one by one would leave."""
    write_atomic(path, b"".join(_line(path, row) for row in rows))


def _lines(path: Path) -> Iterator[bytes]:
    """The lines of a file; an empty last line stands for a compressed line that breaks off."""
    content = path.read_bytes() if path.is_file() else b""
    if path.suffix != ".gz":
        yield from io.BytesIO(content)
        return

    # Every line was appended as a gzip member of its own; ``left`` limits what all of them may unpack to.
    count = 0
    left = most(len(content), unpacking.LINES)
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
    """One line of JSON; in a ``.gz`` file a gzip member without a date, so that equal content is equal
    bytes.
    """
    line = json.dumps(row, sort_keys=True).encode() + b"\n"
    return gzip.compress(line, mtime=0) if path.suffix == ".gz" else line


def checked(content: Any, model: Any, where: str) -> Any:
    """``content`` itself. Raises DataError naming ``where``, the key and the value unless it is of
    ``model``.
    """
    try:
        _adapter(model).validate_python(content, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        if first["type"] == "missing":
            what = f"key {key!r} is missing"
        else:
            reason = first["msg"].removeprefix("Value error, ").lower()
            what = f"{f'key {key!r}' if key else 'its content'} is {shown(first['input'])} ({reason})"
        raise DataError(
            f"{where}: {what}; the file is damaged. Restore it from a copy (git checkout of a stored run), "
            "or delete it and run again the command that wrote it"
        ) from error
    return content


@cache
def _adapter(model: Any) -> TypeAdapter[Any]:
    return TypeAdapter(model)
