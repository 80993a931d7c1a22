"""Rows as compressed columns, the form of stored runs: each key once, with the list of its values.

``metrics.json.xz`` of a stored run has the content of ``metrics.jsonl`` in two thirds of the bytes of
compressed lines. ``pandas.read_json`` reads it directly.

Parquet (pyarrow 26) was measured on all 784 files of the nano tier: 8.34 MB with zstd 19 and 8.35 MB with
brotli 11, both without dictionaries and statistics (9.70 and 9.64 MB with dictionaries), against 4.92 MB
here. Each file has a few hundred rows of mostly distinct doubles, to which Parquet adds a footer and a page
header per column. Reading all of them took 11.4 s, against 6.0 s here, and nested trajectories have no
Arrow type.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from r3l.core.errors import DataError
from r3l.files import unpacking
from r3l.files.unpacking import most, unpacked
from r3l.files.writing import write_atomic

SUFFIX = ".json.xz"
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 6 | lzma.PRESET_EXTREME, "pb": 0}]  # pb 0: text is not aligned
MEMORY = 64 << 20  # bytes for unpacking; our own files (preset 6) need 8 MiB


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
    """The rows of a file of ``write_columns``. Raises DataError naming the file if it is damaged or another
    one.
    """
    content = path.read_bytes()
    decompressor = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MEMORY)
    try:
        text = unpacked(content, decompressor, most(len(content), unpacking.LINES), path)
        if not decompressor.eof or decompressor.unused_data:
            raise ValueError("it does not end where it should")
        columns = json.loads(text)
    except (lzma.LZMAError, ValueError, RecursionError) as error:
        raise DataError(f"{path} is damaged ({error}); get it again") from error
    are_lists = isinstance(columns, dict) and all(isinstance(column, list) for column in columns.values())
    if not are_lists or len({len(column) for column in columns.values()}) > 1:
        raise DataError(f"{path} does not hold columns of one length; get it again")
    return [
        {name: value for name, value in zip(columns, values, strict=True) if value is not None}
        for values in zip(*columns.values(), strict=True)
    ]
