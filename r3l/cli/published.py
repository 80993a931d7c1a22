"""The verb that checks published numbers: `r3l published`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from r3l.cli.arguments import RESULTS, AsJson, Results, output
from r3l.cli.printing import print_shown
from r3l.core.errors import ConfigError, check_known


def published(
    table: Annotated[str | None, typer.Option(help="Only this published table, e.g. table1.")] = None,
    benchmark: Annotated[str | None, typer.Option(help="Only this benchmark, e.g. ALFWorld.")] = None,
    ordering: Annotated[
        bool, typer.Option("--ordering", help="Compare our order of methods with the paper's.")
    ] = False,
    results: Results = RESULTS,
    out: Annotated[Path | None, output("Also write what is printed as CSV.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check every published number: its source, other values of the same quantity, and whether k of n can be it.

    Example: `r3l published --table table1 --benchmark ALFWorld`

    Example: `r3l published --ordering --results results/stored`
    """
    from rich.console import Group

    from r3l.report.published import checks
    from r3l.report.published import ordering as orders
    from r3l.report.render import to_terminal
    from r3l.report.rows import write_csv

    if ordering and (table or benchmark):
        raise ConfigError("--ordering compares whole environments; leave --table and --benchmark away")
    rows = _ordering(results) if ordering else _checks(table, benchmark)
    if out:
        write_csv(rows, out)
    if ordering:
        print_shown({"rows": rows}, as_json, to_terminal(orders.ordering_table(rows)))
        return
    shown = map(to_terminal, (checks.checks_table(rows), checks.summary_table(rows)))
    sources = "\n".join(["Sources", *checks.sources(rows)])
    print_shown({"rows": rows, "summary": checks.summary(rows)}, as_json, Group(*shown, sources))


def _checks(table: str | None, benchmark: str | None) -> list[dict[str, Any]]:
    from r3l.report import published as data
    from r3l.report.published.checks import check

    known = data.load()
    if table:
        check_known("published table", table, {row.table for row in known})
    if benchmark:
        check_known("published benchmark", benchmark, {row.benchmark for row in known})
    rows = [r for r in known if table in (None, r.table) and benchmark in (None, r.benchmark)]
    if not rows:
        raise ConfigError(f"published table {table!r} has nothing on {benchmark!r}; leave one of both options away")
    return check(rows, known)


def _ordering(results: Path) -> list[dict[str, Any]]:
    from r3l.report import published as data
    from r3l.report import records
    from r3l.report.published import ordering
    from r3l.runs.places import find_runs

    reference = data.Reference(data.of_table("table1"))
    return ordering.ordering(records.load(find_runs(results)), reference)
