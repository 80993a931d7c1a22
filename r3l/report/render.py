"""A table in a terminal (rich), in Markdown and in LaTeX (pandas, booktabs). HTML: r3l.report.html."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pandas as pd
from rich import box
from rich import table as rich
from rich.console import Group, RenderableType
from rich.text import Text

from r3l.report.table import EMPTY, Cell, Table

MARKDOWN = str.maketrans({"<": "&lt;", "|": "\\|", "*": "\\*"})
LATEX = str.maketrans(
    {c: f"\\{c}" for c in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "±": r"$\pm$"}
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


def to_terminal(table: Table) -> RenderableType:
    """Sections with a title are printed as papers do: the title above indented rows. Each note begins a line."""
    titled = table.titled
    shown = rich.Table(
        title=table.title or None,
        caption=None if titled else "\n".join(table.notes) or None,
        show_footer=any(column.footer for column in table.columns),
    )
    if titled:
        shown.box, shown.padding, shown.pad_edge = box.SIMPLE_HEAD, (0, 1, 0, 0), False
    for index, column in enumerate(table.columns):
        shown.add_column(
            column.name,
            footer=column.footer,
            justify="right" if column.side == "right" else "left",
            no_wrap=column.no_wrap,
            overflow="fold" if titled and index else "ellipsis",  # what is too long goes on in the next line
        )
    for section in table.sections:
        if titled:
            shown.add_row(Text(section.title, style="italic"))
        for row in section.rows:
            head, *cells = (row.get(name, EMPTY) for name in table.names)
            shown.add_row(f"  {head.text}" if titled else _text(head), *map(_text, cells))
        shown.add_section()
    return Group(shown, *map(Text, table.notes)) if titled else shown


def _text(cell: Cell) -> Text:
    return Text(cell.text, style="bold" if cell.bold else "")


def to_csv(rows: Sequence[Mapping[str, object]]) -> str:
    """A line a row, with the columns of the first; None is empty, numbers as Python writes them."""
    return str(pd.DataFrame(rows, dtype=object).to_csv(index=False, lineterminator="\n"))


def to_markdown(table: Table) -> str:
    """A pipe table with its title and notes; the title of a section stands in its first row."""

    def text(cell: Cell) -> str:
        return f"**{cell.text}**" if cell.bold else cell.text.translate(MARKDOWN)

    shown = _frame(table, text)
    sides = [column.side for column in table.columns]
    if table.titled:
        titles = [title for section in table.sections for title in [section.title] + [""] * (len(section.rows) - 1)]
        shown.insert(0, table.by.capitalize(), [title.translate(MARKDOWN) for title in titles])
        sides.insert(0, "left")
    pipes = shown.to_markdown(index=False, disable_numparse=True, colalign=sides)
    notes = "\n".join(f"- {note.translate(MARKDOWN)}" for note in table.notes)
    return f"# {table.title.translate(MARKDOWN)}\n\n{pipes}\n\n{notes}\n"


def to_latex(table: Table) -> str:
    """A floating table that fits the page of any style; the title of a section stands above its rows."""

    def text(cell: Cell) -> str:
        return f"\\textbf{{{tex(cell.text)}}}" if cell.bold else tex(cell.text)

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
