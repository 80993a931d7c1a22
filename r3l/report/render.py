"""A table in a terminal (rich), in Markdown and in LaTeX (pandas, booktabs). HTML: r3l.report.html."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd
from rich import box
from rich import table as rich
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from r3l.core.text import printable
from r3l.report.table import EMPTY, Cell, Column, Table

INTERVAL = re.compile(r" [\[(][^\])]*\d[^\])]*[\])]")  # in brackets, after a number
GRID, NARROW = 3, 2  # characters that a column takes beside its texts, with lines between columns and without
MARKDOWN = re.compile(r"[|*\\`~$]|&(?=#?\w+;)|(?<!\w)_|_(?!\w)|\](?=[\[(:])")  # an underscore in a word is none
LATEX = str.maketrans(
    {c: f"\\{c}" for c in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"`": r"\textasciigrave{}", "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "±": r"$\pm$"}
)
LONG = 60  # characters of a section's title, above which it is no cell of the first column
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
class OnTerminal:
    """A table that fits the terminal: intervals go on in further lines, then columns are left out by ``drop`` and
    named. Numbers are never cut."""

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Called by rich."""
        table, width = self.table, options.max_width
        fixed = table.titled and not any(column.drop for column in table.columns)
        if fixed or _width(table, NARROW if table.titled else GRID) <= width:
            yield _laid_out(table)
            return
        table = _mapped(table, lambda text: INTERVAL.sub(lambda found: re.sub(" ", "\n", found[0]), text))
        left_out: list[str] = []
        while _width(table, NARROW) > width and (least := max(table.columns, key=lambda c: c.drop)).drop:
            table = replace(table, columns=[column for column in table.columns if column is not least])
            left_out.insert(0, least.name)
        notes = [f"Left out at {width} columns: {', '.join(left_out)} (all: --json)."] if left_out else []
        yield _laid_out(replace(table, notes=[*table.notes, *notes]), narrow=True)


def to_terminal(table: Table) -> RenderableType:
    """Sections with a title are printed as papers do: the title above indented rows. Each note begins a line."""
    return OnTerminal(table)


def _mapped(table: Table, change: Callable[[str], str]) -> Table:
    sections = [
        replace(section, rows=[{n: replace(c, text=change(c.text)) for n, c in row.items()} for row in section.rows])
        for section in table.sections
    ]
    return replace(table, sections=sections)


def _width(table: Table, between: int) -> int:
    """Characters of its longest lines, with ``between`` columns so many."""
    total = 4 if table.titled else 2  # rows below a title are indented
    for column, cells in zip(table.columns, zip(*table.cells(), strict=True), strict=True):
        texts = [column.footer, *(cell.text for cell in cells)]
        total += between + max(len(column.name), *(len(line) for text in texts for line in text.split("\n")))
    return total


def _laid_out(table: Table, narrow: bool = False) -> RenderableType:
    titled = table.titled
    if any(len(section.title) > LONG for section in table.sections):
        return _titles_across(table)
    shown = rich.Table(
        title=_plain(table.title, "table.title") if table.title else None,
        caption=_plain("\n".join(table.notes), "table.caption") if table.notes and not titled else None,
        caption_justify="left",
        show_footer=any(column.footer for column in table.columns),
    )
    if titled or narrow:
        shown.box, shown.padding, shown.pad_edge = box.SIMPLE_HEAD, (0, 1, 0, 0), False
    for index, column in enumerate(table.columns):
        shown.add_column(
            _plain(column.name),
            footer=_plain(column.footer),
            justify="right" if column.side == "right" else "left",
            no_wrap=column.no_wrap,
            min_width=_widest(table, column) if narrow and column.side == "right" else None,
            overflow="fold" if narrow or (titled and index) else "ellipsis",  # what is too long goes on below
        )
    for section in table.sections:
        if titled:
            shown.add_row(_plain(section.title, "italic"))
        for row in section.rows:
            head, *cells = (row.get(name, EMPTY) for name in table.names)
            shown.add_row(_plain(f"  {head.text}") if titled else _text(head), *map(_text, cells))
        shown.add_section()
    return Group(shown, *map(_plain, table.notes)) if titled else shown


def _titles_across(table: Table) -> RenderableType:
    """Each title on lines of its own, for the first column of a table would be as narrow as its cells."""
    rows = [[column.name for column in table.columns], *([cell.text for cell in cells] for cells in table.cells())]
    widths = [max(map(len, texts)) for texts in zip(*rows, strict=True)]

    def lines(cells: Sequence[Sequence[Text]]) -> rich.Table:
        shown = rich.Table(box=None, show_header=False, padding=(0, 1, 0, 0), expand=True)
        for k, (column, width) in enumerate(zip(table.columns, widths, strict=True)):
            shown.add_column(justify=column.side if k else "left", no_wrap=column.no_wrap)
            shown.columns[k].width, shown.columns[k].ratio = (width, None) if column.no_wrap else (None, 1)
        for row in cells:
            shown.add_row(*row)
        return shown

    parts: list[RenderableType] = [_plain(table.title, "bold"), "", lines([list(map(_plain, table.names))])]
    for section in table.sections:
        parts += ["", _plain(section.title, "italic")]
        parts.append(lines([[_text(row.get(name, EMPTY)) for name in table.names] for row in section.rows]))
    return Group(*parts, "", *map(_plain, table.notes))


def _text(cell: Cell) -> Text:
    return _plain(cell.text, "bold" if cell.bold else "")


def _plain(text: str, style: str = "") -> Text:
    """Text that rich shows as it is: neither its markup nor escape codes are read."""
    return Text(printable(text), style=style)


def _widest(table: Table, column: Column) -> int:
    texts = [row.get(column.name, EMPTY).text for section in table.sections for row in section.rows]
    return max((len(line) for text in texts for line in text.split("\n")), default=0)


def to_csv(rows: Sequence[Mapping[str, object]]) -> str:
    """A line a row, with the columns of the first; None is empty, numbers as Python writes them."""
    return str(pd.DataFrame(rows, dtype=object).to_csv(index=False, lineterminator="\n"))


def to_markdown(table: Table) -> str:
    """A pipe table with its title and notes; the title of a section stands in its first row."""

    def text(cell: Cell) -> str:
        return f"**{markdown(cell.text)}**" if cell.bold else markdown(cell.text)

    shown = _frame(table, text)
    shown.columns = [markdown(name) for name in shown.columns]
    sides = [column.side for column in table.columns]
    if table.titled:
        titles = [title for section in table.sections for title in [section.title] + [""] * (len(section.rows) - 1)]
        shown.insert(0, table.by.capitalize(), [markdown(title) for title in titles])
        sides.insert(0, "left")
    pipes = shown.to_markdown(index=False, disable_numparse=True, colalign=sides)
    notes = "\n".join(f"- {markdown(note)}" for note in table.notes)
    return f"# {markdown(table.title)}\n\n{pipes}\n\n{notes}\n"


def markdown(text: str) -> str:
    """``text`` with everything escaped that Markdown would read within a line."""
    return MARKDOWN.sub(r"\\\g<0>", text).replace("<", "&lt;").replace("\n", " ")


def to_latex(table: Table) -> str:
    """A floating table that fits the page of any style; the title of a section stands above its rows."""

    def text(cell: Cell) -> str:
        guard = "{}" if cell.text[:1] in ("[", "*") else ""  # else options of the end of the row before
        return f"\\textbf{{{tex(cell.text)}}}" if cell.bold else guard + tex(cell.text)

    shown, start = _frame(table, text), 0
    shown.columns = [tex(name) for name in shown.columns]
    for section in table.sections:
        # What stands before a row is written into its first cell: a rule, and the title across all columns.
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
    """The texts of all cells, a line a row."""
    head, *others = table.names
    lines = [[text(cell) for cell in cells] for cells in table.cells()]
    return pd.DataFrame(lines, columns=[head.capitalize(), *others])
