"""Output of commands: one JSON object, or text."""

from __future__ import annotations

import json
import os
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console

from r3l.core.errors import ConfigError, R3LError
from r3l.core.text import printable

if TYPE_CHECKING:
    from rich.console import RenderableType


@contextmanager
def flushed() -> Iterator[None]:
    """Flush the standard output after the block. Raises ConfigError if it cannot be written (a full disk).

    Then the rest of the output is discarded, so that Python does not try again when it exits. Errors of the
    block itself are left as they are.
    """
    try:
        try:
            yield
        finally:
            if sys.stdout:
                sys.stdout.flush()
    except OSError as error:
        if isinstance(error, R3LError) or error.filename is not None or _takes_output():
            raise
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        raise ConfigError(
            f"the standard output cannot be written ({error.strerror}); free its disk, or send it elsewhere"
        ) from error


def _takes_output() -> bool:
    """Whether the standard output can be written to. The test writes a line break."""
    try:
        os.write(sys.stdout.fileno(), b"\n")
    except OSError:
        return False
    return True


def print_result(content: Mapping[str, Any], as_json: bool, text: str) -> None:
    """Print ``content`` on one line of JSON with sorted keys, or ``text`` without control characters."""
    print(json.dumps(content, sort_keys=True) if as_json else printable(text))


def print_shown(content: dict[str, Any], as_json: bool, shown: RenderableType) -> None:
    """Print ``content`` on one line of JSON, or ``shown``, such as a table, by rich."""
    if as_json:
        print(json.dumps(content))
    else:
        _console().print(shown)


def print_paragraph(text: str, indent: int) -> None:
    """Print ``text`` between words on lines of the terminal, with ``indent`` blanks before all but the first.

    A long word or a command in backticks is never broken, so that it can be copied: the terminal continues
    it on its next line.
    """
    blank = "\N{NO-BREAK SPACE}"  # printable() leaves none
    whole = re.sub("`[^`]*`", lambda command: command[0].replace(" ", blank), printable(text))
    lines = textwrap.wrap(
        whole,
        _console().width,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    print("\n".join(lines).replace(blank, " "))


def _console() -> Console:
    """As wide as the terminal; without one 150 characters, enough for every table."""
    console = Console()
    return console if console.is_terminal else Console(width=150)


def print_report(content: dict[str, Any], as_json: bool) -> None:
    """Print a measurement as JSON: on one line with ``as_json``, else indented."""
    print(json.dumps(content, indent=None if as_json else 2))


def print_rows(content: dict[str, list[dict[str, Any]]], as_json: bool) -> None:
    """Print ``content``, which has one list of at least one row, on one line of JSON, or as a table.

    The table has the keys of the first row as columns; a dictionary in a cell has a line for each key.
    """
    from r3l.report.table import Cell, Column, table

    def cell(value: Any) -> Cell:
        if isinstance(value, dict):
            return Cell("\n".join(f"{key}: {one}" for key, one in value.items()))
        return Cell(str(value))

    (rows,) = content.values()
    cells = [{column: cell(value) for column, value in row.items()} for row in rows]
    print_shown(content, as_json, table("", list(map(Column, rows[0])), cells))
