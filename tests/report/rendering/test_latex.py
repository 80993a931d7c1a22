"""LaTeX tables fit a page: widths against hand sums, splitting, and what pdflatex itself says of every stored table."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace

import pytest
from report.runs import write_run

from r3l.files.paths import STORED
from r3l.report import records, selection, tables
from r3l.report.rendering import Cell, Column, Section, Table
from r3l.report.rendering.latex import SIZES, to_latex
from r3l.report.tables import budget
from r3l.runs.places import find_runs
from r3l.workflow import plan

DOCUMENT = r"""\documentclass[10pt]{article}
\usepackage[letterpaper,textwidth=5.5in,textheight=9in]{geometry}
\usepackage{booktabs}
\begin{document}
%s
\end{document}
"""
INPUT = r"""\typeout{TABLE %s}\input{%s}\clearpage"""
NO_TEX = pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no LaTeX (apt-get install texlive-latex-base)")


def made(columns: int, rows: int, sections: int = 1, cell: str = "0.123 ± 0.456") -> Table:
    names = [f"column {k}" for k in range(columns)]
    lines = [{"method": Cell(f"row {k}")} | {name: Cell(cell) for name in names} for k in range(rows)]
    heads = [Column("method"), *(Column(name, right=True) for name in names)]
    return Table("Wide & long", heads, [Section(f"block {k}", lines) for k in range(sections)], ["A <note>."])


def column_counts(text: str) -> list[int]:
    return [len(alignment) for alignment in re.findall(r"\\begin\{tabular\}\{@\{\}([lr]+)@\{\}\}", text)]


def compiled(folder, tex_files) -> str:
    """The log of a document of NeurIPS' text width (5.5 inches) with every file on pages of its own."""
    body = "\n".join(INPUT % (path.stem, path) for path in tex_files)
    (folder / "main.tex").write_text(DOCUMENT % body)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "main.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    return (folder / "main.log").read_text(encoding="latin-1")


def misfits(log: str) -> list[str]:
    """What TeX says of boxes that are wider, and of floats that are longer, than the page, and of which table."""
    found, name = [], ""
    for line in log.splitlines():
        if line.startswith("TABLE "):
            name = line
        if "Overfull" in line or "Float too large" in line:
            found.append(f"{name}: {line}")
    return found


def test_a_width_is_that_of_computer_modern():
    """Digits are 0.5 em and a full stop 0.278: 0.500 is 2.278 em, of 9 points and 3 % wider letters."""
    assert SIZES[0].width("0.500") == pytest.approx(2.278 * 9 * 1.03, abs=0.02)
    assert SIZES[0].width("0.500", bold=True) == pytest.approx(1.15 * SIZES[0].width("0.500"))  # 0.575 em a digit


def test_the_largest_type_that_fits_is_taken_and_then_columns_are_split():
    """A column of 0.123 ± 0.456 is 6.06 em: 64 pt of \\small (9.27 pt an em) with the space beside it, 58 of
    \\footnotesize, 54 of \\scriptsize. Beside the 25 to 30 pt of the names 367 to 372 pt are left: for 5, 6 and 6.
    """
    shown = [to_latex(made(n, 2)) for n in (5, 6, 12)]
    assert [re.findall(r"\\(\w+)\\setlength", text) for text in shown] == [
        ["small"],
        ["footnotesize"],
        ["scriptsize", "scriptsize"],
    ]
    assert [column_counts(text) for text in shown] == [[6], [7], [7, 7]]
    text = to_latex(made(12, 2))
    assert "(1 of 2)" in text and "(2 of 2)" in text and text.count("A \\textless{}note\\textgreater{}.") == 1
    assert all(f"column&{k}".replace("&", " ") in text.replace("\\\\", " ") for k in range(12))


def test_a_caption_is_the_title_and_the_notes_stand_below():
    text = to_latex(made(2, 2))
    assert "\\caption{Wide \\& long.}" in text
    assert text.index("\\end{tabular}") < text.index("A \\textless{}note") < text.index("\\end{table}")


def test_a_long_table_goes_on_between_its_sections_and_within_a_long_one():
    text = to_latex(made(2, 20, sections=4))
    assert text.count("\\begin{table}") == 2 and text.count("\\textit{block") == 4 and text.count("row 0") == 4
    text = to_latex(made(2, 100))
    assert "\\textit{block 0 (continued)}" in text and text.count("row ") == 100


@pytest.mark.slow
@NO_TEX
def test_made_tables_are_as_wide_as_we_say(tmp_path):
    for k, table in enumerate([made(5, 60), made(6, 3), made(30, 90), made(9, 3, cell="a long text with words")]):
        (tmp_path / f"t{k}.tex").write_text(to_latex(table))
    assert misfits(compiled(tmp_path, sorted(tmp_path.glob("t*.tex")))) == []
    (tmp_path / "wide.tex").write_text(to_latex(made(5, 3)).replace("\\small\\set", "\\Large\\set"))
    assert len(misfits(compiled(tmp_path, [tmp_path / "wide.tex"]))) == 1  # TeX would have said it


@pytest.mark.slow
@NO_TEX
def test_every_table_of_the_stored_runs_fits_with_and_without_empty_cells(tmp_path):
    runs, config = records.load(find_runs(STORED)), plan.load()
    for name, table in plan.tables().items():
        shown = [] if table.kind == "benchmarks" else selection.selected(runs, table, config, selection.Asked())
        methods = selection.rows(shown, table, config, selection.Asked())
        built = tables.build(table, shown, methods, 5, "nano")
        if not built.rows and not built.beside:
            continue  # r3l table says that there is no run
        built.write(tmp_path / f"{name}.csv")
        replace(built, empty=True).write(tmp_path / f"{name}-empty.csv")
    spent = budget.budget_rows(runs)
    tables.write(spent, budget.table(spent), tmp_path / "budget.csv")
    files = sorted(tmp_path.glob("*.tex"))
    assert len(files) > len(plan.tables())
    assert misfits(compiled(tmp_path, files)) == []


def test_a_table_of_few_runs_is_one_narrow_float(tmp_path):
    write_run(tmp_path, "grpo", 0, [1, 0], [0, 0])
    table = plan.tables()["table1"]
    built = tables.build(table, records.load(find_runs(tmp_path)), ["grpo"], 1, "nano")
    assert column_counts(to_latex(built.printed)) == [2]
