"""The README and docs/results.md print what results/stored/*_nano.md print."""

from __future__ import annotations

import csv

import pytest

from r3l.cli.compare import runs_of
from r3l.core.paths import ROOT, STORED
from r3l.report import compare, records, shown
from r3l.report.labels import env_label
from r3l.report.measures import MEASURES
from r3l.workflow import plan

PAGES = ("README.md", "docs/results.md")
OURS = "nano tier, ours"


def tables(text):
    """Every Markdown table: its rows as lists of cells, the header first, the rule left out."""
    block = []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            block.append([cell.strip(" *`") for cell in line.strip("|").split("|")])
        elif block:
            yield [row for row in block if not set("".join(row)) <= set(":-")]
            block = []


def measured():
    """(method, column) -> what the stored tables of scores print there for our runs."""
    values = {}
    for name in (name for name, table in plan.tables().items() if table.kind == "scores"):
        path = ROOT / "results" / "stored" / f"{name}_nano.md"
        if not path.is_file():
            continue
        for (_, *columns), *rows in map(list, tables(path.read_text(encoding="utf-8"))):
            ours = False
            for first, method, *cells in rows:
                ours = first.startswith(OURS) if first else ours
                for column, cell in zip(columns[1:], cells, strict=True) if ours else ():
                    values.setdefault((method, column), set()).add(cell)
    return (
        values
        | dict(in_long_form("table1", lambda row: row["group"]))
        | dict(in_long_form("learning", lambda row: MEASURES[row["measure"]].label))
    )


def in_long_form(table, part):
    """(method, "ScienceWorld, hard") and its like: what the layout of a table has no column of its own for."""
    with (ROOT / "results" / "stored" / f"{table}_nano.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["high"]:
                mean, high = float(row["mean"]), float(row["high"])
                yield (row["label"], f"{env_label(row['env'])}, {part(row)}"), {f"{mean:.3f} ± {high - mean:.3f}"}


@pytest.mark.parametrize("page", PAGES)
def test_scores_on_this_page_are_the_stored_ones(page):
    stored, checked = measured(), 0
    for (_, *columns), *rows in map(list, tables((ROOT / page).read_text(encoding="utf-8"))):
        for method, *cells in rows:
            for column, cell in zip(columns, cells, strict=False):
                if (method, column) in stored:
                    assert cell in stored[method, column], (method, column, cell)
                    checked += 1
    assert checked >= 12


def difference(row):
    mean, low, high = (row[f"difference_{part}"] for part in ("mean", "low", "high"))
    return f"{mean:+.3f} ({low:+.3f} to {high:+.3f})"


COMPARED = {"minus": difference, "smallest": shown.would_show, "verdict": shown.verdict}


def test_the_comparison_of_the_readme_is_that_of_the_stored_runs():
    """Its rows on R3L minus GRPO are what `r3l compare r3l --against grpo` says of the four environments."""
    (table,) = [rows for rows in map(list, tables((ROOT / "README.md").read_text())) if "ALFWorld" in rows[0]]
    (_, *columns), *rows = table
    envs = {env_label(env): env for env in ("alfworld", "scienceworld", "webshop", "math")}
    runs = runs_of(STORED, "nano", list(envs.values()), ["r3l", "grpo"])
    compared = {row["env"]: row for row in compare.compare(records.load(runs), "r3l", ["grpo"])}
    printed = {kind: cells for first, *cells in rows for kind in COMPARED if kind in first}
    assert printed == {kind: [of(compared[envs[c]]) for c in columns] for kind, of in COMPARED.items()}
