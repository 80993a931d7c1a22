"""Rows of the published data files, .jsonl or .parquet."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from r3l.core.errors import DataError

Row = Mapping[str, Any]


def rows_of(path: Path, columns: Sequence[str] | None = None) -> Iterator[Row]:
    """Every row; of a .parquet file ``columns`` alone (none: all). Raises DataError where the file cannot be read."""
    if path.suffix == ".parquet":
        yield from _parquet_rows(path, columns)
        return
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            try:
                row = json.loads(line)
            except ValueError as error:
                raise DataError(f"{path}, row {number}: not valid JSON ({error}); download it again") from error
            if not isinstance(row, dict):
                raise DataError(f"{path}, row {number}: not a JSON object; take the file that docs/math.md names")
            yield row


def _parquet_rows(path: Path, columns: Sequence[str] | None) -> Iterator[Row]:
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(columns=columns):  # the published DAPO file repeats its rows a hundred times
                yield from batch.to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path}: not a readable parquet file ({error}); download it again") from error
