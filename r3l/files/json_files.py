"""JSON, JSON-lines and compressed-column files, checked against a pydantic model when they are read.

A model is defined where its file is written: a ``TypedDict``, or any other type that pydantic can validate.
Values are returned as they were read, so a reader may rely on the keys and types of the model; further keys
are allowed.
"""

from __future__ import annotations

import gzip
import io
import json
import logging
import lzma
import zlib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeVar, overload

from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import from_json

from r3l.core.errors import DataError
from r3l.core.text import shown
from r3l.files import unpacking
from r3l.files.redact import masked
from r3l.files.unpacking import most, unpacked
from r3l.files.writing import write_atomic

log = logging.getLogger(__name__)
T = TypeVar("T")
Number = Annotated[float, Field(allow_inf_nan=False)]  # an int is one too, and stays an int
_adapter = cache(TypeAdapter)  # building one takes longer than most checks
SUFFIX = ".json.xz"
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 6 | lzma.PRESET_EXTREME, "pb": 0}]  # pb 0: text is not aligned
MEMORY = 64 << 20  # bytes for unpacking; our own files (preset 6) need 8 MiB


def read_text(path: Path) -> str:
    """The text of a file in UTF-8.

    Raises DataError naming file and byte if it is not, OSError if it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is not text in UTF-8: byte {error.start} is {error.object[error.start]:#04x}; save it "
            "as UTF-8"
        ) from error


@overload
def read_json(path: Path) -> Any: ...


@overload
def read_json(path: Path, model: type[T]) -> T: ...


def read_json(path: Path, model: Any = Any) -> Any:
    """The content of a JSON file.

    Raises DataError naming the file if it is missing, damaged, or not of ``model``.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
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
    path = next((variant for variant in variants(path) if variant.is_file()), path)
    if path.name.endswith(SUFFIX):
        rows: list[Any] = read_columns(path)
    else:
        lines = list(_lines(path))
        try:  # all lines at once takes a third of the time
            rows = from_json(b"[" + b",".join(lines) + b"]")
        except ValueError:  # one of them is damaged, or has text that only json reads
            rows = []
        if len(rows) != len(lines):
            rows = _parsed_by_line(path, lines)
    # One check of all lines takes a fraction of the time of a check of each, which names the damaged one.
    try:
        _adapter(list[model]).validate_python(rows, strict=True)
    except ValidationError:
        for number, row in enumerate(rows, 1):
            checked(row, model, f"{path}, line {number}")
    return rows


def _parsed_by_line(path: Path, lines: Iterable[bytes]) -> list[Any]:
    """The content of each line, without a torn last one. Raises DataError for any other damaged line."""
    rows: list[Any] = []
    damage: Exception | None = None
    for line in lines:
        # A damaged line is an error as soon as another one follows: only the last one can be torn.
        if damage is not None:
            raise DataError(f"{path}, line {len(rows) + 1}: not valid JSON ({damage})") from damage
        try:
            rows.append(json.loads(line))
        except (ValueError, RecursionError) as error:
            damage = error
    if damage is not None:
        log.warning("%s: the last line is torn (the writer was killed); skipped", path)
    return rows


def variants(path: Path) -> list[Path]:
    """Paths of a JSON-lines file, preferred first: lines, columns (stored), compressed (by r3l 0.1.0)."""
    return [path, columns_path(path), path.with_name(f"{path.name}.gz")]


def stored_variants(path: Path) -> list[Path]:
    """The existing :func:`variants` of a JSON-lines file."""
    return [variant for variant in variants(path) if variant.is_file()]


def append_jsonl(path: Path, row: Mapping[str, Any]) -> None:
    with path.open("ab") as file:
        file.write(_line(path, row))


def rewrite_jsonl(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Replace all lines at once, by the bytes that appending them one by one would leave."""
    write_atomic(path, b"".join(_line(path, row) for row in rows))


def _lines(path: Path) -> Iterator[bytes]:
    """The lines of a file; an empty last line marks a compressed line that breaks off."""
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
    """One line of JSON, secrets masked; in a ``.gz`` file a gzip member of its own."""
    line = masked(json.dumps(row, sort_keys=True)).encode() + b"\n"
    # Without a date, so that equal content is equal bytes.
    return gzip.compress(line, mtime=0) if path.suffix == ".gz" else line


def checked(content: Any, model: Any, where: str) -> Any:
    """``content`` itself.

    Raises DataError naming ``where``, the key and the value unless it is of ``model``.
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


# Rows as compressed columns, the form of stored runs: each key once, with the list of its values.
# ``metrics.json.xz`` of a stored run has the content of ``metrics.jsonl`` in two thirds of the bytes of
# compressed lines. ``pandas.read_json`` reads it directly.
#
# Parquet (pyarrow 26) was measured on all 784 files of the nano tier: 8.34 MB with zstd 19 and 8.35 MB with
# brotli 11, both without dictionaries and statistics (9.70 and 9.64 MB with dictionaries), against 4.92 MB
# here. Each file has a few hundred rows of mostly distinct doubles, to which Parquet adds a footer and a page
# header per column. Reading all of them took 11.4 s, against 6.0 s here, and nested trajectories have no
# Arrow type.


def columns_path(path: Path) -> Path:
    """The path of the column variant of ``path`` (``.jsonl``, ``.jsonl.gz``)."""
    return path.with_name(path.name.removesuffix(".gz").removesuffix(".jsonl") + SUFFIX)


def write_columns(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Replace ``path`` by ``rows``; equal rows give equal bytes. Missing keys are null in their columns.

    Raises ValueError if a row has a null itself: it would be read back as a missing key.
    """
    rows = list(rows)
    if nulls := {name for row in rows for name, value in row.items() if value is None}:
        raise ValueError(f"{path}: {min(nulls)!r} is null in a row; a column cannot say so")
    names = sorted({name for row in rows for name in row})
    columns = {name: [row.get(name) for row in rows] for name in names}
    text = json.dumps(columns, separators=(",", ":")).encode()
    write_atomic(path, lzma.compress(text, filters=FILTERS))


def read_columns(path: Path) -> list[dict[str, Any]]:
    """The rows of a file of ``write_columns``.

    Raises DataError naming the file if it is damaged or another one.
    """
    # A file from elsewhere may unpack to any size: time and memory are bounded.
    content = path.read_bytes()
    decompressor = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MEMORY)
    try:
        text = unpacked(content, decompressor, most(len(content), unpacking.LINES), path)
        if not decompressor.eof or decompressor.unused_data:
            raise ValueError("it does not end where it should")
        try:
            columns = from_json(text)
        except ValueError:  # damaged, or it has text that only json reads
            columns = json.loads(text)
    except (lzma.LZMAError, ValueError, RecursionError) as error:
        raise DataError(f"{path} is damaged ({error}); get it again") from error
    are_lists = isinstance(columns, dict) and all(isinstance(column, list) for column in columns.values())
    if not are_lists or len({len(column) for column in columns.values()}) > 1:
        raise DataError(f"{path} does not hold columns of one length; get it again")
    rows = zip(*columns.values(), strict=True)
    if not any(None in column for column in columns.values()):
        return [dict(zip(columns, values, strict=True)) for values in rows]

    # A null is a missing key (write_columns refuses rows with a null).
    return [
        {name: value for name, value in zip(columns, values, strict=True) if value is not None}
        for values in rows
    ]
