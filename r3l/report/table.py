"""A table: columns that know how to format a row, rows in groups, notes; and its forms: in a terminal (rich
prints it), Markdown, LaTeX (pandas, booktabs), CSV. HTML: r3l.report.html."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table as RichTable
from rich.text import Text

from r3l.core.text import printable
from r3l.files.writing import writable, write_text_atomic

DIGITS = 4  # of a number in a csv file
# Where numbers may continue on the next line: before an interval, then between its bounds.
BREAKS = (re.compile(r" (?=±|[\[(][^\])]*\d)"), re.compile(r"(?<=,) | (?=to )"))
GAP = 2  # characters between two columns
INDENT = 2  # characters before a row below the title of its section
# An underscore within a word is no markup.
MARKDOWN = re.compile(r"[|*\\`~$]|&(?=#?\w+;)|(?<!\w)_|_(?!\w)|\](?=[\[(:])")
LATEX = str.maketrans(
    {c: f"\\{c}" for c in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {
        "`": r"\textasciigrave{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        "±": r"$\pm$",
    }
)
# adjustbox shrinks what is wider or taller than the page, and leaves the rest as it is
FLOAT = r"""% needs \usepackage{{booktabs,adjustbox}}
\begin{{table}}[t]
\centering
\caption{{{title}.}}
\begin{{adjustbox}}{{max width=\linewidth, max totalheight=0.8\textheight}}
{tabular}\end{{adjustbox}}
\par\smallskip
\begin{{minipage}}{{\linewidth}}
\scriptsize\raggedright
{notes}
\end{{minipage}}
\end{{table}}
"""


@dataclass(frozen=True)
class Cell:
    """The text of a cell.

    ``value``: the number by which it is ranked and sorted; None: it is not. ``title``: shown in HTML when
    hovering. ``runs``: path below a results folder of the runs that it is about, to which the HTML report
    links.
    """

    text: str
    value: float | None = None
    title: str = ""
    bold: bool = False
    runs: str = ""


Row = dict[str, Cell]  # by column; a missing cell is empty
EMPTY = Cell("")


@dataclass(frozen=True)
class Column:
    """A column of a table.

    ``of`` gives the value for a row, by default its entry ``name``. None is an empty cell; a text or a Cell
    is shown as it is; a number is written by the format specification ``form``, which also aligns the column
    to the right. ``no_wrap``: its text stays on one line. ``drop``: if a terminal is too narrow, columns are
    left out, the largest ``drop`` first; 0: never.
    ``filter``: a reader of the HTML can narrow the column to one value, at first to this one ("": all); None:
    no filter.
    """

    name: str
    of: Callable[[Any], Any] | None = None
    form: str = ""
    right: bool = False
    no_wrap: bool = False
    filter: str | None = None
    drop: int = 0

    @property
    def side(self) -> Literal["left", "right"]:
        """Alignment of the column: right if it has ``right`` or a format ``form``, else left."""
        return "right" if self.right or self.form else "left"

    def cell(self, row: Any) -> Cell:
        """The cell for ``row``, a mapping or an object; of a number with its value."""
        if self.of:
            value = self.of(row)
        elif isinstance(row, Mapping):
            value = row.get(self.name)
        else:
            value = getattr(row, self.name)
        if isinstance(value, Cell):
            return value
        if value is None or isinstance(value, str):
            return Cell(value or "")
        # Shares as csv files have them: means of the same scores, summed in another order, print alike.
        shown = rounded(value) if self.form.endswith("f") else value
        return Cell(format(shown, self.form), float(value))


@dataclass
class Section:
    """Rows under one ``title``, which is a line above them; in Markdown and HTML it is a first column.

    An empty title has no line.
    """

    title: str
    rows: list[Row]


@dataclass
class Table:
    """A table in a form that can be printed, and written as HTML, LaTeX, Markdown or CSV.

    The first column names the rows. ``notes`` follow the table. ``by``: what the titles of sections name.
    """

    title: str
    columns: Sequence[Column]
    sections: Sequence[Section]
    notes: Sequence[str] = field(default_factory=list)
    by: str = "model"

    @property
    def names(self) -> list[str]:
        """The names of the columns, in order."""
        return [column.name for column in self.columns]

    @property
    def titled(self) -> bool:
        """True if a section has a title."""
        return any(section.title for section in self.sections)

    def cells(self) -> Iterator[list[Cell]]:
        """Yield the rows of all sections, each as a list with one cell per column."""
        return (
            [row.get(name, EMPTY) for name in self.names] for section in self.sections for row in section.rows
        )

    def section(self, title: str) -> dict[str, Row]:
        """The rows of the first section of this title, by the text of their first column.

        Raises StopIteration if no section has this title.
        """
        rows = next(section.rows for section in self.sections if section.title == title)
        return {row[self.names[0]].text: row for row in rows}

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Fit the table to the terminal: sections' titles above indented rows, notes below. Called by rich.

        A table that is too wide is narrowed in this order: text is wrapped between words; intervals move
        below their numbers; columns are left out and named, by ``drop`` first, then from the right. No number
        is ever cut, and no word that fits the terminal.
        """
        table = self
        room = options.max_width + GAP  # no gap follows the last column
        # First continue text and then intervals on further lines, then leave out columns.
        for space in BREAKS:
            if sum(_widths(table, wrapped=True)) <= room:
                break
            numbers = {column.name for column in table.columns if column.side == "right"}
            sections = []
            for section in table.sections:
                broken: list[Row] = []
                for row in section.rows:
                    texts = {name: space.sub("\n", row[name].text) for name in row if name in numbers}
                    broken.append(row | {name: replace(row[name], text=text) for name, text in texts.items()})
                sections.append(replace(section, rows=broken))
            table = replace(table, sections=sections)
        while sum(least := _widths(table, wrapped=True)) > room and len(table.columns) > 1:
            _, last = max((column.drop, k) for k, column in enumerate(table.columns) if k)
            table = replace(table, columns=[column for k, column in enumerate(table.columns) if k != last])
        kept = [column.name for column in table.columns]
        left_out = [column.name for column in self.columns if column.name not in kept]

        # The widest columns give way first, down to their longest word.
        widths = _widths(table, wrapped=False)
        while sum(widths) > room and (wide := [k for k, width in enumerate(widths) if width > least[k]]):
            widths[max(wide, key=widths.__getitem__)] -= 1

        # Names of columns, a rule, then the sections: each a table of the same widths, for rich's cells
        # cannot span columns as a title does.
        if table.title:
            yield _plain(table.title, "bold")
        head = Section("", [{name: Cell(name, bold=True) for name in kept}])
        for section in [head, *table.sections]:
            if section.title:
                yield _plain(section.title, "italic")
            lines = RichTable(box=None, show_header=False, pad_edge=False, padding=(0, GAP, 0, 0))
            for column, width in zip(table.columns, widths, strict=True):
                lines.add_column(justify=column.side, width=width - GAP, overflow="fold")
            for row in section.rows:
                cells = [row.get(name, EMPTY) for name in kept]
                if table.titled and section is not head:
                    cells[0] = replace(cells[0], text=" " * INDENT + cells[0].text)
                lines.add_row(*(_plain(cell.text, "bold" if cell.bold else "") for cell in cells))
            yield lines
            if section is head:
                yield _plain("\u2500" * (min(sum(widths), room) - GAP), "dim")
        yield from map(_plain, table.notes)
        if left_out:
            yield _plain(f"Left out at {options.max_width} columns: {', '.join(left_out)} (all: --json).")


def table(
    title: str,
    columns: Sequence[Column],
    rows: Sequence[Any],
    *notes: str,
    by: Callable[[Any], str] = lambda row: "",
) -> Table:
    """Make a table of ``rows``, each read by ``columns``; empty ``notes`` are left out.

    ``by`` gives the title of a row's section, an environment, by default none; a section's rows must be
    consecutive.
    """
    sections = [
        Section(name, [{column.name: column.cell(row) for column in columns} for row in part])
        for name, part in groupby(rows, key=by)
    ]
    return Table(title, columns, sections, [note for note in notes if note], "environment")


def mark_best(rows: Sequence[Row], columns: Mapping[str, int]) -> None:
    """Make the best cells of each column of ``rows`` bold, in place, if at least two have a value.

    ``columns``: by name, 1 if the highest is best, -1 if the lowest. Equally good cells are all bold. Cells
    without a value are not ranked.
    """
    for name, sign in columns.items():
        ranked = [sign * cell.value for row in rows if (cell := row[name]).value is not None]
        if len(ranked) > 1:
            for row in rows:
                value = row[name].value
                row[name] = replace(row[name], bold=value is not None and sign * value == max(ranked))


def _plain(text: str, style: str = "") -> Text:
    """Text that rich shows as it is: neither its markup nor escape codes are read."""
    return Text(printable(text), style=style)


def _widths(table: Table, wrapped: bool) -> list[int]:
    """The characters that each column takes for its longest line, and the gap after it; ``wrapped``: for its
    longest word where it holds text. A heading always wraps."""
    indent = INDENT if table.titled else 0
    widths = []
    for place, column in enumerate(table.columns):
        texts = [row.get(column.name, EMPTY).text for section in table.sections for row in section.rows]
        is_text = column.side == "left" and not column.no_wrap
        parts = [
            part for text in texts for part in (text.split() if wrapped and is_text else text.split("\n"))
        ]
        headings = column.name.split() if wrapped else [column.name]
        width = max((cell_len(part) for part in parts), default=0) + (indent if place == 0 else 0)
        widths.append(max([width, *map(cell_len, headings)]) + GAP)
    return widths


def rounded(value: Any) -> Any:
    """``value``; if it is a float, rounded to DIGITS (4) decimals, as csv files have it."""
    return round(float(value), DIGITS) if isinstance(value, float) else value


def as_stored(rows: pd.DataFrame, columns: Sequence[str]) -> list[dict[str, Any]]:
    """The ``columns`` of the rows as csv files and --json have them: rounded; None for a missing value."""
    return [
        {name: rounded(value) for name, value in row.items()} for row in rows[[*columns]].to_dict("records")
    ]


def to_csv(rows: Sequence[Mapping[str, object]]) -> str:
    """The rows as CSV; columns are in the order in which rows first name them, and None is an empty field."""
    return str(pd.DataFrame(rows, dtype=object).to_csv(index=False, lineterminator="\n"))


def write(rows: Sequence[Mapping[str, object]], table: Table, out: Path) -> None:
    """Write ``rows`` as the CSV file ``out``, and ``table`` next to it as .tex and .md, replacing files.

    Raises RunDirectoryError if one cannot be written.
    """
    write_text(to_csv(rows), out)
    write_text(to_latex(table), out.with_suffix(".tex"))
    write_text(to_markdown(table), out.with_suffix(".md"))


def write_text(text: str, out: Path) -> None:
    """Write a file atomically. Raises RunDirectoryError naming the file if it cannot be written."""
    with writable(out):
        write_text_atomic(out, text)


def to_markdown(table: Table) -> str:
    """The table as a pipe table with title and notes; the title of a section is in its first row."""

    def text(cell: Cell) -> str:
        return f"**{markdown(cell.text)}**" if cell.bold else markdown(cell.text)

    shown = _frame(table, text)
    shown.columns = [markdown(name) for name in shown.columns]
    sides = [column.side for column in table.columns]
    if table.titled:
        titles = [
            title for section in table.sections for title in [section.title] + [""] * (len(section.rows) - 1)
        ]
        shown.insert(0, table.by.capitalize(), [markdown(title) for title in titles])
        sides.insert(0, "left")
    pipes = shown.to_markdown(index=False, disable_numparse=True, colalign=sides)
    notes = "\n".join(f"- {markdown(note)}" for note in table.notes)
    return f"# {markdown(table.title)}\n\n{pipes}\n\n{notes}\n"


def markdown(text: str) -> str:
    """``text`` with everything escaped that Markdown would read within a line."""
    return MARKDOWN.sub(r"\\\g<0>", text).replace("<", "&lt;").replace("\n", " ")


def to_latex(table: Table) -> str:
    """LaTeX source of the table: a float that fits any page; titles of sections are above their rows."""

    def text(cell: Cell) -> str:
        guard = "{}" if cell.text[:1] in ("[", "*") else ""  # else options of the end of the row before
        return f"\\textbf{{{tex(cell.text)}}}" if cell.bold else guard + tex(cell.text)

    shown = _frame(table, text)
    start = 0
    shown.columns = [tex(name) for name in shown.columns]
    for section in table.sections:
        # Text before a row is written into its first cell: a rule, and the title across all columns.
        rule = "\\midrule\n" if start else ""
        title = f"\\multicolumn{{{len(table.names)}}}{{l}}{{\\textit{{{tex(section.title)}}}}} \\\\\n"
        shown.iloc[start, 0] = rule + (title if section.title else "") + str(shown.iloc[start, 0])
        start += len(section.rows)
    sides = "".join(column.side[0] for column in table.columns)
    tabular = shown.style.hide(axis="index").to_latex(hrules=True, column_format=sides)
    return FLOAT.format(title=tex(table.title), tabular=tabular, notes="\n".join(map(tex, table.notes)))


def tex(text: str) -> str:
    """``text`` with everything escaped that LaTeX would read."""
    return text.translate(LATEX).replace("--", "-{}-")  # no dash


def _frame(table: Table, text: Callable[[Cell], str]) -> pd.DataFrame:
    """The texts of all cells as a DataFrame, one row per table row."""
    head, *others = table.names
    lines = [[text(cell) for cell in cells] for cells in table.cells()]
    return pd.DataFrame(lines, columns=[head.capitalize(), *others])
