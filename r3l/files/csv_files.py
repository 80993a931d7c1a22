"""CSV files with a header, whose lines may be checked against a pydantic model with the columns as fields."""

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

csv.field_size_limit(2**31 - 1)  # by default 131,072 characters: a transcript is longer
FILES = 32  # files whose rows are kept in memory; our choice: a report reads some ten of published numbers


def csv_lines(
    path: Path, content: str, columns: Sequence[str] | None = None
) -> list[tuple[str, dict[str, str]]]:
    """The rows of a CSV file with the text ``content``, by column, each with its place (``main.csv, line 3``).

    ``columns``: the header that it must have; None: any. Blank lines are skipped, and a byte order mark, with
    which Excel begins a file. Raises DataError, naming file, line and fix, for another header, one that has a
    column twice, or for a row with another number of columns than the header.
    """
    reader = csv.DictReader(io.StringIO(content.removeprefix("\ufeff"), newline=""))
    try:
        named = [name for name in reader.fieldnames or () if name]
        twice = [name for k, name in enumerate(named) if name in named[:k]]
        if twice:
            raise DataError(f"{path}, line 1: column {twice[0]!r} is there twice; rename or remove one")
        if columns is not None and reader.fieldnames != columns:
            raise DataError(f"{path}, line 1: columns are {reader.fieldnames}; write {','.join(columns)}")
        lines = [(f"{path}, line {reader.line_num}", fields) for fields in reader]
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num}: {error}; correct it") from error
    for where, fields in lines:
        if None in fields or None in fields.values():
            count = len(reader.fieldnames or ())
            raise DataError(f"{where}: not {count} columns; put text that has a comma in quotes")
    return lines


def read_csv(path: Path, model: type[M]) -> Sequence[tuple[str, M]]:
    """The rows of a CSV file as ``model``, each with its place (``main.csv, line 3``).

    The header must be the fields of ``model``, in order. Raises DataError, naming file, line, column, value
    and fix, for another header, another number of columns, a value that ``model`` refuses, or text that is
    not UTF-8; OSError if the file cannot be read.
    """
    return _rows(path, read_text(path), model)


@lru_cache(maxsize=FILES)  # a report reads a file once per table, and again if it was changed
def _rows(path: Path, content: str, model: type[BaseModel]) -> Sequence[tuple[str, Any]]:
    rows = []
    for where, fields in csv_lines(path, content, list(model.model_fields)):
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
