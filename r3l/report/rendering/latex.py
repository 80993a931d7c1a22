"""A table in LaTeX that fits a paper: within the text of NeurIPS, notes below, split where it is too wide or too long.

Widths are those of Computer Modern, which is wider than the Times of most styles: what fits by this fits there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from PIL.ImageFont import FreeTypeFont

from r3l.report.rendering.model import EMPTY, Cell, Column, Row, Section, Table

WIDTH, HEIGHT = 5.5 * 72.27, 9 * 72.27  # pt: the text of a page of NeurIPS and ICLR; ICML's two columns are wider
EM = 1000  # of the font that widths are read from: a thousandth is exact enough
BOLD = 1.15  # cmbx10 against cmr10
CAPTION = 60.0  # pt: caption and rules
SPECIAL = str.maketrans(
    {c: f"\\{c}" for c in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "±": r"$\pm$"}
)
AS_WIDE = str.maketrans("<>|", "++i")  # what the font has in their places is narrower


@dataclass(frozen=True)
class Size:
    """A size of type: its command, points, width of a letter against that of 10 pt, space beside a column."""

    command: str
    points: float
    wider: float
    space: float

    def width(self, text: str, bold: bool = False) -> float:
        """Of a line, in pt."""
        return self.points * self.wider * _ems(text) * (BOLD if bold else 1)

    @property
    def line(self) -> float:
        """The height of a line, in pt."""
        return 1.2 * self.points


SIZES = (Size("small", 9, 1.03, 4), Size("footnotesize", 8, 1.065, 3), Size("scriptsize", 7, 1.14, 3))
NOTES = SIZES[-1]


def to_latex(table: Table) -> str:
    """Environments for a document with ``\\usepackage{booktabs}``: the largest type in which all columns stand side by
    side, else the smallest, and the columns in several tables."""
    grids = [_Grid(table, size) for size in SIZES]
    grid = next((grid for grid in grids if len(grid.parts) == 1), grids[-1])
    floats = [(part, page) for part in grid.parts for page in grid.pages]
    blocks = []
    for k, (part, page) in enumerate(floats, start=1):
        number = f" ({k} of {len(floats)})" if len(floats) > 1 else ""
        last = k == len(floats)
        blocks.append(_float(f"{table.title}{number}.", grid.tabular(part, page), table.notes if last else ()))
    return "% needs \\usepackage{booktabs}\n" + "\n".join(blocks)


def tex(text: str) -> str:
    """``text`` with everything escaped that LaTeX would read."""
    return text.translate(SPECIAL).replace("--", "-{}-")  # no dash


def _float(caption: str, tabular: str, notes: Sequence[str]) -> str:
    lines = ["\\begin{table}[t]", "\\centering", f"\\caption{{{tex(caption)}}}", tabular]
    if notes:
        written = "\n".join(tex(note) for note in notes)
        lines += ["\\par\\smallskip", "\\begin{minipage}{\\linewidth}", f"\\{NOTES.command}\\raggedright", written]
        lines += ["\\end{minipage}"]
    return "\n".join([*lines, "\\end{table}\n"])


@dataclass(frozen=True)
class _Grid:
    """A table in one size of type: its first column, and the others in parts that fit beside it."""

    table: Table
    size: Size

    @cached_property
    def head(self) -> Column:
        return self.table.columns[0]

    @cached_property
    def parts(self) -> list[list[Column]]:
        """Columns side by side, as many as fit."""
        parts: list[list[Column]] = [[]]
        left = WIDTH - self._width(self.head)
        room = left
        for column in self.table.columns[1:]:
            needed = self._width(column) + 2 * self.size.space
            if parts[-1] and needed > room:
                parts.append([])
                room = left
            parts[-1].append(column)
            room -= needed
        return parts

    @cached_property
    def pages(self) -> list[list[Section]]:
        """Sections below each other, as many as fit; one that is too long for a page goes on in the next."""
        header = max(len(self._header(column)) for column in self.table.columns)
        notes = self._notes_height()
        room = max(HEIGHT - CAPTION - header * self.size.line - notes, HEIGHT / 3)
        most = math.floor(room / self.size.line)  # lines
        pages: list[list[Section]] = [[]]
        lines = 0.0
        for section in _cut(self.table.sections, most - 1):
            needed = len(section.rows) + (1 if section.title else 0) + 0.5  # the rule above
            if pages[-1] and lines + needed > most:
                pages.append([])
                lines = 0.0
            pages[-1].append(section)
            lines += needed
        return pages

    def tabular(self, part: Sequence[Column], page: Sequence[Section]) -> str:
        """The rows of ``page`` in the columns ``part``."""
        columns = [self.head, *part]
        alignment = "".join("r" if column.right else "l" for column in columns)
        size = f"\\{self.size.command}\\setlength{{\\tabcolsep}}{{{self.size.space:g}pt}}"
        lines = [size, f"\\begin{{tabular}}{{@{{}}{alignment}@{{}}}}", "\\toprule"]
        lines += [_line([self._stacked(column) for column in columns])]
        for section in page:
            lines += ["\\midrule"]
            if section.title:
                lines += [f"\\multicolumn{{{len(columns)}}}{{@{{}}l}}{{\\textit{{{tex(section.title)}}}}} \\\\"]
            lines += [_line([_cell(row.get(column.name, EMPTY)) for column in columns]) for row in section.rows]
        return "\n".join([*lines, "\\bottomrule", "\\end{tabular}"])

    def _stacked(self, column: Column) -> str:
        lines = [tex(line) for line in self._header(column)]
        if len(lines) == 1:
            return lines[0]
        side, stacked = "r" if column.right else "l", "\\\\".join(lines)
        return f"\\begin{{tabular}}[b]{{@{{}}{side}@{{}}}}{stacked}\\end{{tabular}}"

    def _header(self, column: Column) -> list[str]:
        """The name of a column in lines that are no wider than its cells, where words allow it."""
        name = column.name.capitalize() if column is self.head else column.name
        lines: list[str] = []
        for word in name.split(" "):
            longer = f"{lines[-1]} {word}" if lines else word
            if lines and self.size.width(longer) <= self._cells_width(column):
                lines[-1] = longer
            else:
                lines.append(word)
        return lines

    def _width(self, column: Column) -> float:
        return max(self._cells_width(column), *(self.size.width(line) for line in self._header(column)))

    def _cells_width(self, column: Column) -> float:
        cells = (row.get(column.name, EMPTY) for row in _rows(self.table))
        return max((self.size.width(cell.text, cell.bold) for cell in cells), default=0)

    def _notes_height(self) -> float:
        return math.ceil(1.1 * NOTES.width(" ".join(self.table.notes)) / WIDTH) * NOTES.line


def _rows(table: Table) -> Iterator[Row]:
    return (row for section in table.sections for row in section.rows)


def _cut(sections: Sequence[Section], most: int) -> Iterator[Section]:
    """``sections``, those with more than ``most`` rows in pieces."""
    for section in sections:
        for start in range(0, max(len(section.rows), 1), most):
            title = f"{section.title} (continued)" if start and section.title else section.title
            yield Section(title, section.rows[start : start + most])


def _line(cells: Sequence[str]) -> str:
    return " & ".join(cells) + " \\\\"


def _cell(cell: Cell) -> str:
    return f"\\textbf{{{tex(cell.text)}}}" if cell.bold else tex(cell.text)


@cache
def _ems(text: str) -> float:
    """The width of ``text`` in Computer Modern of 10 pt, of which matplotlib brings a copy."""
    return float(_font().getlength(text.translate(AS_WIDE))) / EM


@cache
def _font() -> FreeTypeFont:
    import matplotlib
    from PIL.ImageFont import truetype

    return truetype(str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "cmr10.ttf"), EM)
