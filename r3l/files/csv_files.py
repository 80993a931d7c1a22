"""CSV files with a header, checked line by line against a pydantic model whose fields are the columns."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from r3l.core.errors import DataError
from r3l.files.json_files import read_text

M = TypeVar("M", bound=BaseModel)

FILES = 32  # files whose rows are kept in memory; our choice: a report reads some ten of published numbers


def read_csv(path: Path, model: type[M]) -> Sequence[tuple[str, M]]:
    """The rows of a CSV file as ``model``, each with its place (``main.csv, line 3``).

    The header must be the fields of ``model``, in order. Raises DataError, naming file, line, column, value
    and fix, for another header, another number of columns, a value that ``model`` refuses, or text that is
    not UTF-8; OSError if the file cannot be read.
    """
    return _rows(path, read_text(path), model)


@lru_cache(maxsize=FILES)  # a report reads a file once per table, and again if it was changed
def _rows(path: Path, content: str, model: type[BaseModel]) -> Sequence[tuple[str, Any]]:
    # The form: header, quotes, number of columns.
    columns = list(model.model_fields)
    reader = csv.DictReader(io.StringIO(content, newline=""))
    try:
        if reader.fieldnames != columns:
            raise DataError(f"{path}, line 1: columns are {reader.fieldnames}; write {','.join(columns)}")
        lines = [(f"{path}, line {reader.line_num}", fields) for fields in reader]
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num}: {error}; correct it") from error

    rows = []
    for where, fields in lines:
        if None in fields or None in fields.values():
            raise DataError(f"{where}: not {len(columns)} columns; put text that has a comma in quotes")
        # The values, by the model.
        try:
            rows.append((where, model.model_validate(fields)))
        except ValidationError as error:
            problems = []
            for one in error.errors():
                column = ".".join(map(str, one["loc"]))
                place = f"column {column!r} has value {one['input']!r}: " if column else ""
                problems.append(place + one["msg"].removeprefix("Value error, "))
            raise DataError(f"{where}: {'; '.join(problems)}; correct it") from error
    return rows
