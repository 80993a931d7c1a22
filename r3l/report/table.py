"""A table: columns that know how to format a row, rows in groups, notes. r3l.report.render lays it out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Literal


@dataclass(frozen=True)
class Cell:
    """The text of a cell; ``value`` ranks and sorts it (None: no number, or no complete one); ``title``: when hovering;
    ``runs``: the place under a results folder of those that it is about, to which the HTML report links."""

    text: str
    value: float | None = None
    title: str = ""
    bold: bool = False
    runs: str = ""


Row = dict[str, Cell]  # by column; a missing cell is empty
EMPTY = Cell("")


@dataclass(frozen=True)
class Column:
    """``of`` gives a row's value here, by default what it calls ``name``: None is an empty cell, a text and a
    Cell stand as they are, a number is written by ``form``, a format specification, which also aligns the
    column to the right.

    ``drop``: where a terminal is too narrow, columns are left out, the largest first; 0: never.
    ``filter``: a reader of the HTML may narrow the column to one value, this one at first ("": all); None: no filter.
    """

    name: str
    of: Callable[[Any], Any] | None = None
    form: str = ""
    right: bool = False
    no_wrap: bool = False
    footer: str = ""
    filter: str | None = None
    drop: int = 0

    @property
    def side(self) -> Literal["left", "right"]:
        return "right" if self.right or self.form else "left"

    def cell(self, row: Any) -> Cell:
        value = (
            self.of(row)
            if self.of
            else row.get(self.name)
            if isinstance(row, Mapping)
            else getattr(row, self.name)
        )
        if isinstance(value, Cell):
            return value
        if value is None or isinstance(value, str):
            return Cell(value or "")
        return Cell(format(value, self.form), float(value))


@dataclass
class Section:
    """Rows under one ``title``, which is a column of its own in Markdown and HTML."""

    title: str
    rows: list[Row]


@dataclass
class Table:
    """The first column names the rows. ``notes`` stand below. ``by``: what the titles of sections name."""

    title: str
    columns: Sequence[Column]
    sections: Sequence[Section]
    notes: Sequence[str] = field(default_factory=list)
    by: str = "model"

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def titled(self) -> bool:
        return any(section.title for section in self.sections)

    def cells(self) -> Iterator[list[Cell]]:
        """Yield the rows of all sections, each as a list with one cell per column."""
        return (
            [row.get(name, EMPTY) for name in self.names] for section in self.sections for row in section.rows
        )

    def section(self, title: str) -> dict[str, Row]:
        """The rows of a section by their name. Raises StopIteration for a title that there is not."""
        rows = next(section.rows for section in self.sections if section.title == title)
        return {row[self.names[0]].text: row for row in rows}


def table(
    title: str,
    columns: Sequence[Column],
    rows: Sequence[Any],
    *notes: str,
    by: Callable[[Any], str] = lambda row: "",
) -> Table:
    """``rows`` in sections of consecutive rows for which ``by``, their environment, is the same."""
    sections = [
        Section(name, [{column.name: column.cell(row) for column in columns} for row in part])
        for name, part in groupby(rows, key=by)
    ]
    return Table(title, columns, sections, [note for note in notes if note], "environment")


def mark_best(rows: Sequence[Row], columns: Mapping[str, int]) -> None:
    """Make the best cells bold where two have a value; ``columns``: 1 if the highest is best, -1 if the
    lowest."""
    for name, sign in columns.items():
        ranked = [sign * cell.value for row in rows if (cell := row[name]).value is not None]
        if len(ranked) > 1:
            for row in rows:
                value = row[name].value
                row[name] = replace(row[name], bold=value is not None and sign * value == max(ranked))
