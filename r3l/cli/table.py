"""Verbs that show results, offline: table, figure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from r3l.cli.arguments import RESULTS, AsJson, Results, rows_named
from r3l.cli.printing import print_result, print_shown
from r3l.core.errors import DataError, check_known

if TYPE_CHECKING:
    from r3l.report.records import Record
    from r3l.workflow.plan import TableConfig, WorkflowConfig


def table(
    name: Annotated[str, typer.Argument(help="A file of configs/tables/, or budget.")],
    evaluations: Annotated[list[Path] | None, typer.Argument(help="evaluation.json files.")] = None,
    results: Results = RESULTS,
    out: Annotated[Path | None, typer.Option(help="Also write the table: NAME.csv, .tex and .md beside it.")] = None,
    rows: Annotated[str | None, typer.Option(help="Methods of the rows, by commas. Default: the table's.")] = None,
    tier: Annotated[str | None, typer.Option(help="Only this tier's runs; cells that nobody has run show too.")] = None,
    seeds_planned: Annotated[int | None, typer.Option(min=1, help="Default: configs/workflow.yaml.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make a table from result files, offline; missing methods and seeds are shown as missing.

    Example: `r3l table table1 --out results/table1.csv`

    Example: `r3l table table1 --tier paper`
    """
    from r3l.report import budget, records, tables
    from r3l.report.table.terminal import to_terminal
    from r3l.runs.places import find_benchmark_runs, find_runs
    from r3l.workflow import plan

    specs = plan.tables()
    check_known("table", name, {*specs, "budget"})
    if name == "budget":
        spent = budget.budget_rows(records.load(evaluations or find_runs(results)))
        printed = budget.table(spent)
        if out:
            tables.write(spent, printed, out)
        print_shown({"rows": spent}, as_json, to_terminal(printed))
        return
    config, spec = plan.load(plan.workflow_content(tier)), specs[name]
    of_sets = spec.kind == "benchmarks"
    benchmark_runs = (evaluations or find_benchmark_runs(results)) if of_sets else []
    runs = [] if of_sets else _belonging(spec, config, evaluations, results, tier)
    benches = config.benches(spec) if tier else []
    run = {record["method"] for record in runs}
    wanted = [m for m in spec.methods if m in run or m in config.rows(spec)]
    planned = len(config.seeds) if seeds_planned is None else seeds_planned
    methods = rows_named(rows) or wanted
    built = tables.build(spec, runs, methods, planned, config.tier, benchmark_runs, benches)
    if out:
        built.write(out)
    print_shown({"rows": built.rows}, as_json, built.to_terminal())


def _belonging(
    table: TableConfig, config: WorkflowConfig, evaluations: list[Path] | None, results: Path, tier: str | None
) -> list[Record]:
    """The runs of a table: the given ones, else what belongs into it of all that lies under ``results``."""
    from r3l.report import records
    from r3l.runs.places import find_further, find_runs

    may_be_none = tier is not None or table.kind == "published"
    found = evaluations or find_runs(results, may_be_none)
    if table.question_sets and not evaluations:
        found = [*found, *(further for path in found for further in find_further(path.parent))]
    runs = records.load(found)
    runs = [record for record in runs if tier in (None, record["tier"])]
    if table.kind == "published":
        return runs
    if not evaluations:
        columns = config.columns(table)
        sets = {name for env in columns for name in config.question_sets(table, env).values()}
        runs = [record for record in runs if record["env"] in {*columns, *sets}]
    if not runs and not may_be_none:
        raise DataError(f"no run under {results} belongs to {table.table} ({', '.join(config.columns(table))})")
    return runs


def figure(
    name: Annotated[str, typer.Argument(help="learning_curves, exploration, ... (docs/figures.md), or a table.")],
    evaluations: Annotated[list[Path] | None, typer.Argument(help="evaluation.json files.")] = None,
    results: Results = RESULTS,
    out: Annotated[Path, typer.Option(help="Folder of NAME.pdf and NAME.png, or one such file.")] = RESULTS / "figures",
    table: Annotated[str | None, typer.Option(help="Show the runs of this table. Default: the figure's own.")] = None,
    rows: Annotated[str | None, typer.Option(help="Methods to show, by commas. Default: the table's.")] = None,
    as_json: AsJson = False,
) -> None:
    """Draw a figure from result files, offline, as PDF and PNG.

    Example: `r3l figure learning_curves --rows grpo,r3l --out results/figures`
    """
    from r3l.report import figures, records
    from r3l.runs.places import find_runs
    from r3l.workflow import plan

    specs = plan.tables()
    check_known("figure", name, figures.FIGURES)
    check_known("table", table or figures.FIGURES[name].table, specs)
    spec = specs[table or figures.FIGURES[name].table]
    shown = rows_named(rows)
    runs = records.load(evaluations or find_runs(results))
    if not evaluations:  # of all that lies there, what belongs into this table
        config = plan.load()
        wanted = shown or [*spec.methods, *config.rows(spec)]
        envs = config.columns(spec)
        runs = [record for record in runs if record["env"] in envs and record["method"] in wanted]
    elif shown:
        runs = [record for record in runs if record["method"] in shown]
    written = figures.draw(name, runs, out, spec)
    paths = [str(path) for path in written]
    print_result({"figure": name, "files": paths}, as_json, "\n".join(paths))
