"""Labels in every medium: what a method is called is shown as it is written, or refused where it is
loaded."""

import html
import re
import warnings

import pytest
from markdown_it import MarkdownIt
from pydantic import TypeAdapter, ValidationError
from rich.console import Console

from r3l.config.files import Label
from r3l.core.text import printable
from r3l.report.figures import style
from r3l.report.html.page import to_html
from r3l.report.table import Cell, Column, Section, Table, to_latex, to_markdown

LABELS = [
    "R3L [ours]",
    "[/b]",
    "[bold]x",
    "a_b _c_ *d* `e` $5$ & 6$ &lt;",
    "<b>|\\{x}~~y~~^",
    "_x",
    "100 % #1",
    "*",
    "中 é",
]


def table_of(label):
    """It stands in every place that a text can have."""
    rows = [{"method": Cell(label), label: Cell(label, 1.0, bold=True)}]
    return Table(label, [Column("method"), Column(label)], [Section(label, rows)], [label])


@pytest.mark.parametrize("label", LABELS)
def test_a_label_is_shown_as_it_is_written(label):
    assert TypeAdapter(Label).validate_python(label) == label
    console = Console(width=150)
    with console.capture() as captured:
        console.print(table_of(label))
    assert captured.get().count(label) == 6
    page = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(to_markdown(table_of(label)))
    assert html.unescape(re.sub("<[^>]+>", "", page)).count(label) == 6
    assert html.unescape(re.sub("<[^>]+>", "", str(to_html(table_of(label))))).count(label) >= 5


def test_a_row_that_begins_with_a_bracket_is_no_option_of_the_row_before():
    latex = to_latex(table_of("[ours] $x$"))
    assert r"{}[ours] \$x\$" in latex and not re.search(r"\\\\\s*(\\midrule\s*)?[\[*]", latex)


def test_a_figure_reads_no_mathematics_and_has_no_missing_glyph(tmp_path):
    figure, axes = style.subplots(1, 1, 7, 3)
    labels = dict(zip(style.METHODS, LABELS, strict=False))
    style.method_rows(axes[0], labels)
    style.method_legend(figure, labels)
    axes[0, 0].set_title("$x_{y$ 中")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        style.save(figure, tmp_path / "figure.png")
    drawn = [text.get_text() for text in figure.legends[0].get_texts()]
    assert drawn == [{"_x": " _x", "中 é": "<U+4E2D> é"}.get(label, label) for label in LABELS]
    assert axes[0, 0].get_title() == "$x_{y$ <U+4E2D>"


@pytest.mark.parametrize("label", ["", " x", "a\nb", "\x1b[31mred", "x\u202ey", "x" * 101, "\u200b"])
def test_what_cannot_be_a_label_is_refused(label):
    with pytest.raises(ValidationError, match="String should (match pattern|have at most 100)"):
        TypeAdapter(Label).validate_python(label)
    assert printable(f"{label}\x1b[0m\u202e") == printable(label) + "\\x1b[0m\\u202e"
