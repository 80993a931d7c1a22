"""A table of Markdown, from texts by row and column."""

from __future__ import annotations

NOTHING = "No such run is stored yet."
# Texts by the row's name and by column; a mean has its number of seeds in brackets.
Rows = dict[str, dict[str, str]]


def pipe_table(rows: Rows) -> str:
    """The table with a line for each row, and the columns in the order in which rows name them first.

    A row without a text for a column has an empty cell. NOTHING without rows.
    """
    if not rows:
        return NOTHING
    columns = list(dict.fromkeys(name for texts in rows.values() for name in texts))
    lines = [[name, *(texts.get(column, "") for column in columns)] for name, texts in rows.items()]
    return "\n".join(
        f"| {' | '.join(line)} |" for line in (["", *columns], ["---"] * (1 + len(columns)), *lines)
    )
