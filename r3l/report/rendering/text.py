"""A table of titled sections as Markdown, and rows of values as CSV, by pandas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from r3l.report.rendering.model import Table

MARKDOWN = str.maketrans({"<": "&lt;", "|": "\\|", "*": "\\*"})


def to_csv(rows: Sequence[Mapping[str, object]]) -> str:
    """A line a row, with the columns of the first; None is empty, numbers as Python writes them."""
    return str(pd.DataFrame(rows, dtype=object).to_csv(index=False, lineterminator="\n"))


def to_markdown(table: Table) -> str:
    """A pipe table with its title and notes; the title of a section stands in its first row only."""
    texts, bold = _frames(table)
    shown = texts.map(lambda text: text.translate(MARKDOWN)).where(~bold, "**" + texts + "**").reset_index()
    shown["Method"] = [text.translate(MARKDOWN) for text in shown["Method"]]
    shown["Model"] = shown["Model"].mask(shown["Model"].duplicated(), "")
    aligned = ["left", "left", *("right" for _ in texts.columns)]
    pipes = shown.to_markdown(index=False, disable_numparse=True, colalign=aligned)
    notes = "\n".join(f"- {note.translate(MARKDOWN)}" for note in table.notes)
    return f"# {table.title.translate(MARKDOWN)}\n\n{pipes}\n\n{notes}\n"


def _frames(table: Table) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Texts, and whether each is bold, with the index (section, row)."""
    head, *columns = table.names
    rows = [(section.title, row) for section in table.sections for row in section.rows]
    index = pd.MultiIndex.from_tuples([(title, row[head].text) for title, row in rows], names=["Model", "Method"])
    texts = [[row[name].text for name in columns] for _, row in rows]
    bold = [[row[name].bold for name in columns] for _, row in rows]
    return pd.DataFrame(texts, index, columns), pd.DataFrame(bold, index, columns)
