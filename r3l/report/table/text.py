"""A table of titled sections as Markdown and as LaTeX, by pandas; rows of values as CSV."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import pandas as pd

from r3l.report.table.model import Table

TEX = str.maketrans(
    {c: f"\\{c}" for c in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "±": r"$\pm$"}
)
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


def to_latex(table: Table) -> str:
    """A table environment for a document with ``\\usepackage{booktabs}``; the notes stand in its caption."""
    texts, bold = _frames(table)
    marks = bold.map(lambda is_bold: "textbf:--rwrap;" if is_bold else "")
    style = texts.style.format(_tex).format_index(_tex, axis=0).format_index(_tex, axis=1)
    style = style.format_index_names(_tex, axis=0).apply(lambda _: marks, axis=None)
    text = style.to_latex(
        hrules=True,
        clines="skip-last;data",
        multirow_align="naive",
        column_format="ll" + "r" * len(texts.columns),
        position="t",
        position_float="centering",
        caption=" ".join(_tex(note) for note in (f"{table.title}.", *table.notes)),
    )
    text = re.sub(r"\\cline\{[-\d]+\}\n(\\bottomrule)?", lambda match: match[1] or "\\midrule\n", text)
    return f"% needs \\usepackage{{booktabs}}\n{text}"


def _frames(table: Table) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Texts, and whether each is bold, with the index (section, row)."""
    head, *columns = table.names
    rows = [(section.title, row) for section in table.sections for row in section.rows]
    index = pd.MultiIndex.from_tuples([(title, row[head].text) for title, row in rows], names=["Model", "Method"])
    texts = [[row[name].text for name in columns] for _, row in rows]
    bold = [[row[name].bold for name in columns] for _, row in rows]
    return pd.DataFrame(texts, index, columns), pd.DataFrame(bold, index, columns)


def _tex(text: str) -> str:
    return text.translate(TEX)
