"""The table model and its renderers, on a table of two sections made by hand."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from r3l.report.table import (
    Cell,
    Column,
    Row,
    Section,
    Table,
    mark_best,
    table,
    to_csv,
    to_latex,
    to_markdown,
)


def row(name: str, score: float | None, cost: float) -> Row:
    return {"method": Cell(name), "score": Cell(str(score or "none"), score), "cost": Cell(str(cost), cost)}


@pytest.fixture
def two() -> Table:
    sections = [Section("A & B", [row("x", 0.5, 3), row("y", 0.7, 2)]), Section("C", [row("z", None, 1)])]
    for section in sections:
        mark_best(section.rows, {"score": 1, "cost": -1})
    return Table(
        "T",
        [Column("method"), Column("score", right=True), Column("cost", right=True)],
        sections,
        ["a <note>"],
    )


def test_the_best_is_marked_where_two_are_compared(two):
    rows = two.section("A & B")
    assert [rows[name][column].bold for name in "xy" for column in ("score", "cost")] == [
        False,
        False,
        True,
        True,
    ]
    assert not any(cell.bold for cell in two.section("C")["z"].values())


def test_markdown_and_latex_escape_and_mark(two):
    markdown, latex = to_markdown(two), to_latex(two)
    assert "**0.7**" in markdown and "a &lt;note>" in markdown
    assert r"\textbf{0.7}" in latex and r"a \textless{}note\textgreater{}" in latex


def test_csv_writes_numbers_as_python_does_and_nothing_for_none():
    assert (
        to_csv([{"a": 1, "b": 0.1, "c": None}, {"a": None, "b": 2, "c": "x,y"}])
        == 'a,b,c\n1,0.1,\n,2,"x,y"\n'
    )


def test_a_column_formats_what_it_takes_from_a_row():
    columns = [Column("name"), Column("p", lambda row: row["p_value"], ".3f"), Column("n", form=",")]
    rows = [{"name": "a", "p_value": 0.01234, "n": 1000}, {"name": None, "p_value": None, "n": 2}]
    made = table("T", columns, rows, by=lambda row: str(row["n"]))
    assert [[cell.text for cell in cells] for cells in made.cells()] == [
        ["a", "0.012", "1,000"],
        ["", "", "2"],
    ]
    assert len(made.sections) == 2 and [column.side for column in columns] == ["left", "right", "right"]


def test_shares_print_the_digits_of_the_csv_whatever_the_order_of_their_sum():
    """0.7695 summed two ways is 0.76949999999999996 or 0.76950000000000007: 0.769 and 0.770 without rounding."""
    column = Column("score", form=".3f")
    ways = [0.76949999999999996, 0.76950000000000007]
    assert ways[0] != ways[1] and {column.cell({"score": way}).text for way in ways} == {"0.769"}
    assert Column("score", form=".2g").cell({"score": 5.2e-5}).text == "5.2e-05"  # not a share of 0.0001


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no LaTeX (apt-get install texlive-latex-extra)")
def test_a_wide_and_long_table_fits_a_page(tmp_path):
    columns = [Column("method"), *(Column(f"column {k}", right=True) for k in range(14))]
    rows = [{column.name: Cell("0.123 ± 0.456") for column in columns} for _ in range(90)]
    document = "\\documentclass{article}\\usepackage{booktabs,adjustbox}\\begin{document}\n%s\\end{document}"
    (tmp_path / "t.tex").write_text(document % to_latex(table("Wide", columns, rows, "note")))
    done = subprocess.run(
        ["pdflatex", "-halt-on-error", "t.tex"], cwd=tmp_path, capture_output=True, check=False
    )
    assert done.returncode == 0 and b"Overfull" not in done.stdout and b"too large" not in done.stdout
