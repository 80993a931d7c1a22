"""JSON, JSON-lines and compressed-column files, checked against a pydantic model when they are read.

A model is defined where its file is written: a ``TypedDict``, or any other type that pydantic can validate.
Values are returned as they were read, so a reader may rely on the keys and types of the model; further keys
are allowed.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import logging
import lzma
import os
import re
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from inspect import getsource
from pathlib import Path
from types import FunctionType
from typing import Annotated, Any, NotRequired, TypeVar, get_args, get_origin, get_type_hints, overload

from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import from_json, to_json
from typing_extensions import TypedDict

from r3l.core.errors import DataError
from r3l.core.text import shown
from r3l.files import unpacking
from r3l.files.cleanup import DAY, remove_unused
from r3l.files.paths import cache_folder, regular
from r3l.files.redact import masked
from r3l.files.unpacking import most, unpacked
from r3l.files.writing import write_atomic

log = logging.getLogger(__name__)
T = TypeVar("T")
Number = Annotated[float, Field(allow_inf_nan=False)]  # an int is one too, and stays an int
_adapter = cache(TypeAdapter)  # building one takes longer than most checks
SUFFIX = ".json.xz"
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 6 | lzma.PRESET_EXTREME, "pb": 0}]  # pb 0: text is not aligned
UNUSED = 30  # days after which cached columns that were not read are removed; our choice
MEMORY = 64 << 20  # bytes for unpacking; our own files (preset 6) need 8 MiB


def read_text(path: Path) -> str:
    """The text of a file in UTF-8.

    Raises DataError naming file and byte if it is not, OSError if it cannot be read.
    """
    try:
        return regular(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is not text in UTF-8: byte {error.start} is {error.object[error.start]:#04x}; save it "
            "as UTF-8"
        ) from error


@overload
def read_json(path: Path) -> Any: ...


@overload
def read_json(path: Path, model: type[T], content: bytes | None = None) -> T: ...


def read_json(path: Path, model: Any = Any, content: bytes | None = None) -> Any:
    """Parse a JSON file; ``content``: its bytes, if the caller has read them.

    Raises DataError naming the file if it is missing or damaged, or if its content is not of type ``model``;
    OSError if it cannot be read for another reason. Values are checked, not converted, and further keys are
    allowed; without ``model`` nothing is checked.
    """
    try:
        content = regular(path).read_bytes() if content is None else content
        try:
            parsed = from_json(content)  # in half the time
        except ValueError:  # it is damaged, or has text that only json reads
            parsed = json.loads(content.decode())
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DataError(f"{path} is missing; is this a finished run directory?") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not valid JSON ({error}); delete it and run the command again") from error
    return checked(parsed, model, str(path))


@overload
def read_jsonl(path: Path) -> list[dict[str, Any]]: ...


@overload
def read_jsonl(path: Path, model: type[T]) -> list[T]: ...


def read_jsonl(path: Path, model: Any = dict[str, Any]) -> list[Any]:
    """The values on the lines of a JSON-lines file, in order; [] if no file exists.

    It reads ``path`` (``.gz``: compressed), or if that is missing the first of its :func:`variants` that
    exists. A torn last line, left by a killed writer, is skipped with a warning. Raises DataError for any
    other damaged line, and for a line that is not of ``model``.
    """
    path = next((variant for variant in variants(path) if variant.is_file()), path)
    content = path.read_bytes() if path.is_file() else b""
    if path.name.endswith(SUFFIX):
        rows = _rows(_unpacked_columns(path, content))
    else:
        rows = _parsed_lines(path, content)
    return _checked_rows(rows, model, path)


def read_jsonl_columns(
    path: Path, model: Any, names: tuple[str, ...], content: bytes | None = None
) -> dict[str, list[Any]]:
    """Read the keys ``names`` of a finished JSON-lines file as columns: by key, a list with a value per line.

    A value is None where a line lacks the key; if no file exists, each list is empty. It reads the first of
    the :func:`variants` of ``path`` that exists; if ``content`` is given, it is the bytes of ``path`` itself.
    ``model``: type of a line, a TypedDict with these keys. On the first read all lines are checked against
    it, with DataError, as in :func:`read_jsonl`.

    Columns are kept in the cache folder, since unpacking and checking the lines again takes ten times as
    long. Their key is the sha256 of the file's bytes and of what ``model`` checks, so a changed file or
    another model is read again. Columns that were not read for 30 days are removed.
    """
    if content is None:
        path = next((variant for variant in variants(path) if variant.is_file()), path)
        content = path.read_bytes() if path.is_file() else b""

    # Looked up by content, model and names. A cache that is damaged, or of another form, is written again.
    decisive = "\0".join((hashlib.sha256(content).hexdigest(), _digest_of_model(model), *names))
    key = hashlib.sha256(decisive.encode()).hexdigest()
    cached = f"{cache_folder('columns')}/{key[:2]}/{key}.json"  # of thousands of runs: a Path takes as long
    with suppress(OSError, ValueError):
        with open(cached, "rb", buffering=0) as file:
            columns: dict[str, list[Any]] = from_json(file.read())
            days = (time.time() - os.fstat(file.fileno()).st_mtime) / DAY
        _columns_adapter(model, names).validate_python(columns, strict=True)
        with suppress(OSError):  # a cache that cannot be written is read all the same
            if days > 1:
                os.utime(cached)  # in use: kept for another UNUSED days
        return columns

    if path.name.endswith(SUFFIX):
        columns = _unpacked_columns(path, content)
        try:
            _columns_adapter(model).validate_python(columns, strict=True)
        except ValueError:  # the check of single lines says which one is wrong
            _checked_rows(_rows(columns), model, path)
        count = len(next(iter(columns.values()), []))
        columns = {name: columns.get(name, [None] * count) for name in names}
    else:
        rows = _checked_rows(_parsed_lines(path, content), model, path)
        columns = {name: [row.get(name) for row in rows] for name in names}
    # Without a cache it only takes longer. ValueError: text that is not Unicode.
    with suppress(OSError, ValueError):
        write_atomic(Path(cached), to_json(columns))
        remove_unused(cache_folder("columns"), UNUSED)
    return columns


@cache
def _digest_of_model(model: Any) -> str:
    """The sha256, in hex, of all that ``model`` checks: pydantic's schema, and the source of own functions.

    Another process of the same code gets the same digest.
    """

    def plain(schema: Any) -> Any:
        if isinstance(schema, Mapping):
            return {key: plain(value) for key, value in schema.items()}
        if isinstance(schema, (list, tuple)):
            return [plain(value) for value in schema]
        if isinstance(schema, FunctionType):
            return getsource(schema)
        return schema.__qualname__ if isinstance(schema, type) else repr(schema)

    text = repr(plain(_adapter(model).core_schema))
    text = re.sub(r":\d{7,}", "", text)  # addresses in memory, which pydantic adds to equal names
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def _columns_adapter(model: Any, names: tuple[str, ...] | None = None) -> TypeAdapter[Any]:
    """Pydantic adapter of the columns ``names`` (None: all): by key, a list with the value of each line.

    A key that a line may lack has None in the list, or no list at all.
    """
    hints = get_type_hints(model, include_extras=True)
    fields: dict[str, Any] = {}
    for name in hints if names is None else names:
        kind: Any = hints[name]
        if get_origin(kind) is NotRequired:
            fields[name] = NotRequired[list[get_args(kind)[0] | None]]  # type: ignore[misc]
        else:
            fields[name] = list[kind]
    return TypeAdapter(TypedDict("Columns", fields))  # type: ignore[operator]


def _checked_rows(rows: list[Any], model: Any, path: Path) -> list[Any]:
    """``rows`` themselves. Raises DataError naming the first line that is not of ``model``."""
    # One check of all lines takes a fraction of the time of a check of each, which names the damaged one.
    try:
        _adapter(list[model]).validate_python(rows, strict=True)
    except ValidationError:
        for number, row in enumerate(rows, 1):
            checked(row, model, f"{path}, line {number}")
    return rows


def _parsed_lines(path: Path, content: bytes) -> list[Any]:
    """The lines of a file (``content``) that is not stored as columns, without a torn last one."""
    lines = list(_lines(path, content))
    try:  # all lines at once takes a third of the time
        rows = from_json(b"[" + b",".join(lines) + b"]")
    except ValueError:  # one of them is damaged, or has text that only json reads
        rows = []
    return rows if len(rows) == len(lines) else _parsed_by_line(path, lines)


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
    """The three paths at which a JSON-lines file may be, whether or not any exists, preferred first.

    ``path`` itself (lines), with ``.json.xz`` (columns of stored runs), and with ``.gz`` added (compressed
    lines, by r3l 0.1.0).
    """
    return [path, columns_path(path), path.with_name(f"{path.name}.gz")]


def stored_variants(path: Path) -> list[Path]:
    """The existing :func:`variants` of a JSON-lines file, preferred first; [] if none does."""
    return [variant for variant in variants(path) if variant.is_file()]


def append_jsonl(path: Path, row: Mapping[str, Any]) -> None:
    """Append ``row`` as one line of JSON, secrets masked (``.gz``: compressed).

    Makes the file if it is missing, not its folder.
    Not atomic: a killed writer leaves a torn last line, which :func:`read_jsonl` skips.
    """
    with path.open("ab") as file:
        file.write(_line(path, row))


def rewrite_jsonl(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Replace ``path`` atomically by ``rows``, in the bytes that appending them one by one would leave."""
    write_atomic(path, b"".join(_line(path, row) for row in rows))


def _lines(path: Path, content: bytes) -> Iterator[bytes]:
    """The lines of a file (``content``); an empty last line marks a compressed line that breaks off."""
    if path.suffix != ".gz":
        yield from io.BytesIO(content)
        return

    # Every line was appended as a separate gzip member; ``left`` limits what all of them may unpack to.
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
    """One line of JSON, secrets masked; in a ``.gz`` file a separate gzip member."""
    line = masked(json.dumps(row, sort_keys=True)).encode() + b"\n"
    # Without a date, so that equal content is equal bytes.
    return gzip.compress(line, mtime=0) if path.suffix == ".gz" else line


def checked(content: Any, model: Any, where: str) -> Any:
    """Return ``content`` unchanged if it is of ``model`` (types are not converted, further keys allowed).

    Otherwise raise DataError naming ``where`` (such as the path), the first wrong key and its value.
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
    """``path`` (NAME.jsonl or NAME.jsonl.gz) as NAME.json.xz, the name of its columns in stored runs."""
    return path.with_name(path.name.removesuffix(".gz").removesuffix(".jsonl") + SUFFIX)


def write_columns(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Replace ``path`` atomically by ``rows`` as compressed columns; equal rows give equal bytes.

    Missing keys are null in their columns, so a row with a null (None) itself raises ValueError: it would be
    read back as a missing key.
    """
    rows = list(rows)
    if nulls := {name for row in rows for name, value in row.items() if value is None}:
        raise ValueError(f"{path}: {min(nulls)!r} is null in a row; a column cannot say so")
    names = sorted({name for row in rows for name in row})
    columns = {name: [row.get(name) for row in rows] for name in names}
    text = json.dumps(columns, separators=(",", ":")).encode()
    write_atomic(path, lzma.compress(text, filters=FILTERS))


def _unpacked_columns(path: Path, content: bytes) -> dict[str, list[Any]]:
    """The columns of a file of ``write_columns`` with the bytes ``content``; None: the row lacks the key."""
    # A file from elsewhere may unpack to any size: time and memory are bounded.
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
    found: dict[str, list[Any]] = columns
    return found


def _rows(columns: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """The rows of columns; a null is a missing key (``write_columns`` refuses rows with a null)."""
    rows = zip(*columns.values(), strict=True)
    if not any(None in column for column in columns.values()):
        return [dict(zip(columns, values, strict=True)) for values in rows]
    return [
        {name: value for name, value in zip(columns, values, strict=True) if value is not None}
        for values in rows
    ]
