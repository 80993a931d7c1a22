"""Verbs that show results, offline: table, figure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from r3l.cli.arguments import (
    RESULTS,
    AsJson,
    Runs,
    SeveralResults,
    environments_named,
    found,
    named_runs,
    output,
    rows_named,
)
from r3l.cli.printing import print_result, print_shown
from r3l.core.errors import DataError, check_known

if TYPE_CHECKING:
    from r3l.report.records import Record
    from r3l.report.selection import Asked
    from r3l.workflow.plan import TableConfig, WorkflowConfig

Columns = Annotated[
    str | None, typer.Option("--env", help="Only these environments, by commas. Default: the table's, and your own.")
]
Rows = Annotated[
    str | None, typer.Option("--rows", "--method", help="Only these methods, by commas. Default: the table's.")
]


def table(
    name: Annotated[str, typer.Argument(help="A file of configs/tables/, or budget.")],
    runs: Runs = None,
    results: SeveralResults = None,
    out: Annotated[Path | None, output("Also write the table: NAME.csv, .tex and .md beside it.")] = None,
    env: Columns = None,
    rows: Rows = None,
    tier: Annotated[str | None, typer.Option(help="Only this tier's runs.")] = None,
    seeds_planned: Annotated[int | None, typer.Option(min=1, help="Default: configs/workflow.yaml.")] = None,
    empty: Annotated[bool, typer.Option("--empty", help="Print rows and columns that have no run, too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make a table from result files, offline; missing methods and seeds are shown as missing.

    Example: `r3l table table1 --out results/table1.csv`

    Example: `r3l table table1 --tier paper`
    """
    from r3l.report import records, selection, tables
    from r3l.report.render import to_terminal
    from r3l.report.selection import Asked
    from r3l.report.tables import budget
    from r3l.runs.places import find_benchmark_runs
    from r3l.workflow import plan

    specs = plan.tables()
    check_known("table", name, {*specs, "budget"})
    named = named_runs(runs)
    asked = Asked(environments_named(env), rows_named(rows), named)
    if name == "budget":
        spent = budget.budget_rows(asked.narrowed(records.load(found(named, results))))
        printed = budget.table(spent)
        if out:
            tables.write(spent, printed, out)
        print_shown({"rows": spent}, as_json, to_terminal(printed))
        return
    config, spec = plan.load(plan.workflow_content(tier)), specs[name]
    benchmark_runs: list[Path] = []
    shown: list[Record] = []
    if spec.kind == "benchmarks":
        benchmark_runs = named or [path for folder in results or [RESULTS] for path in find_benchmark_runs(folder)]
    else:
        shown = _belonging(spec, config, asked, results, tier)
    built = tables.build(
        spec,
        shown,
        selection.rows(shown, spec, config, asked),
        len(config.seeds) if seeds_planned is None else seeds_planned,
        config.tier,
        benchmark_runs,
        config.benches(spec) if tier and env is None else (),
    )
    built = replace(built, empty=empty or tier is not None)
    if out:
        built.write(out)
    print_shown({"rows": built.rows}, as_json, built.to_terminal())


def _belonging(
    table: TableConfig, config: WorkflowConfig, asked: Asked, results: list[Path] | None, tier: str | None
) -> list[Record]:
    """The runs of a table: of those that are named, and of all that lie under ``results``."""
    from r3l.report import records, selection
    from r3l.runs.places import find_further

    may_be_none = tier is not None or table.kind == "published"
    paths = found(list(asked.runs), results, may_be_none)
    if table.question_sets:
        known = {*paths}
        paths += [further for path in paths for further in find_further(path.parent) if further not in known]
    runs = [record for record in records.load(paths) if tier in (None, record["tier"])]
    shown = selection.selected(runs, table, config, asked)
    if not shown and not may_be_none:
        where = " or ".join(map(str, results or ([] if asked.runs else [RESULTS])))
        raise DataError(
            f"no run under {where} belongs to {table.table} ({', '.join(asked.envs or config.columns(table))})"
        )
    return shown


def figure(
    name: Annotated[str, typer.Argument(help="learning_curves, exploration, ... (docs/tables.md), or a table.")],
    runs: Runs = None,
    results: SeveralResults = None,
    out: Annotated[Path, output("Folder of NAME.pdf and NAME.png, or one file.", folder=True)] = RESULTS / "figures",
    table: Annotated[str | None, typer.Option(help="Show the runs of this table. Default: the figure's own.")] = None,
    env: Columns = None,
    rows: Rows = None,
    as_json: AsJson = False,
) -> None:
    """Draw a figure from result files, offline, as PDF and PNG.

    Example: `r3l figure learning_curves --rows grpo,r3l --out results/figures`
    """
    from r3l.report import figures, records
    from r3l.report.selection import Asked, selected
    from r3l.workflow import plan

    specs = plan.tables()
    check_known("figure", name, figures.FIGURES)
    check_known("table", table or figures.FIGURES[name].table, specs)
    spec, named = specs[table or figures.FIGURES[name].table], named_runs(runs)
    asked = Asked(environments_named(env), rows_named(rows), named)
    shown = selected(records.load(found(named, results)), spec, plan.load(), asked)
    written = figures.draw(name, shown, out, spec)
    paths = [str(path) for path in written]
    print_result({"figure": name, "files": paths}, as_json, "\n".join(paths))
