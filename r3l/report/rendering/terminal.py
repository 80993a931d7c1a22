"""A table in a terminal, by rich."""

from __future__ import annotations

from rich import box
from rich import table as rich
from rich.console import Group, RenderableType
from rich.text import Text

from r3l.report.rendering.model import EMPTY, Cell, Table


def to_terminal(table: Table) -> RenderableType:
    """Sections with a title are printed as papers do: the title above indented rows. Each note begins a line."""
    return _titled(table) if any(section.title for section in table.sections) else _plain(table)


def _plain(table: Table) -> rich.Table:
    shown = rich.Table(
        title=table.title or None,
        caption="\n".join(table.notes) or None,
        show_footer=any(column.footer for column in table.columns),
    )
    _add_columns(shown, table, folded=False)
    for section in table.sections:
        for row in section.rows:
            shown.add_row(*(_text(row.get(name, EMPTY)) for name in table.names))
        shown.add_section()
    return shown


def _titled(table: Table) -> Group:
    shown = rich.Table(title=table.title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    _add_columns(shown, table, folded=True)
    for section in table.sections:
        shown.add_row(Text(section.title, style="italic"))
        for row in section.rows:
            head, *cells = (row.get(name, EMPTY) for name in table.names)
            shown.add_row(f"  {head.text}", *map(_text, cells))
        shown.add_section()
    return Group(shown, *map(Text, table.notes))


def _add_columns(shown: rich.Table, table: Table, folded: bool) -> None:
    """``folded``: what is too long for its column goes on in the next line, but for names."""
    for index, column in enumerate(table.columns):
        shown.add_column(
            column.name,
            footer=column.footer,
            justify="right" if column.right else "left",
            no_wrap=column.no_wrap,
            overflow="fold" if folded and index else "ellipsis",
        )


def _text(cell: Cell) -> Text:
    return Text(cell.text, style="bold" if cell.bold else "")
