"""The table model and its renderers, on a table of two sections made by hand."""

from __future__ import annotations

import pytest
from rich.console import Console

from r3l.report.html.rendering import to_html
from r3l.report.rendering import Cell, Column, Row, Section, Table
from r3l.report.rendering.latex import to_latex
from r3l.report.rendering.model import mark_best, table
from r3l.report.rendering.terminal import to_terminal
from r3l.report.rendering.text import to_csv, to_markdown


def row(name: str, score: float | None, cost: float) -> Row:
    return {"method": Cell(name), "score": Cell(str(score or "none"), score), "cost": Cell(str(cost), cost)}


@pytest.fixture
def two() -> Table:
    sections = [Section("A & B", [row("x", 0.5, 3), row("y", 0.7, 2)]), Section("C", [row("z", None, 1)])]
    for section in sections:
        mark_best(section.rows, {"score": 1, "cost": -1})
    return Table("T", [Column("method"), Column("score", right=True), Column("cost")], sections, ["a <note>"])


def text(shown: Table, width: int = 60) -> str:
    console = Console(width=width, record=True)
    console.print(to_terminal(shown))
    return console.export_text()


def test_the_best_is_marked_where_two_are_compared(two):
    rows = two.section("A & B")
    assert [rows[name][column].bold for name in "xy" for column in ("score", "cost")] == [False, False, True, True]
    assert not any(cell.bold for cell in two.section("C")["z"].values())


def test_sections_stand_above_their_rows_in_a_terminal(two):
    lines = [line.strip() for line in text(two).splitlines()]
    assert lines.index("A & B") < lines.index("C") and "a <note>" in lines
    assert "    x" not in text(two) and "  x" in text(two)


def test_a_table_of_one_section_has_its_notes_as_caption_and_a_missing_cell_is_empty():
    columns = [Column("a"), Column("b", footer="sum")]
    shown = text(table("T", columns, [{"a": Cell("[0.1, 0.2]")}], "note", "", "another"))
    assert "[0.1, 0.2]" in shown and "sum" in shown
    assert {"note", "another"} <= {line.strip() for line in shown.splitlines()}  # each begins a line


def test_markdown_and_latex_escape_and_mark(two):
    markdown, latex = to_markdown(two), to_latex(two)
    assert "| A & B   | x        |" in markdown and "|         | y        | **0.7** |  **2** |" in markdown
    assert "- a &lt;note>" in markdown
    assert r"\textbf{0.7}" in latex and r"A \& B" in latex and r"a \textless{}note\textgreater{}" in latex


def test_html_escapes_sorts_by_value_and_names_its_filters():
    cells = [{"env": Cell("<b>", title="why"), "n": Cell("1,000", 1000.0)}]
    page = to_html(table("T", [Column("env", filter=""), Column("n")], cells))
    assert '<td title="why">&lt;b&gt;</td><td class="number" data-value="1000.0">1,000</td>' in page
    assert 'data-filters="{&#34;env&#34;: &#34;&#34;}"' in page


def test_csv_writes_numbers_as_python_does_and_nothing_for_none():
    assert to_csv([{"a": 1, "b": 0.1, "c": None}, {"a": None, "b": 2, "c": "x,y"}]) == 'a,b,c\n1,0.1,\n,2,"x,y"\n'
