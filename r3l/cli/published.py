"""The verb that checks published numbers: `r3l published`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from r3l.cli.common import RESULTS, AsJson, Results, check_known, print_shown
from r3l.core.errors import ConfigError


def published(
    table: Annotated[str | None, typer.Option(help="Only this published table, e.g. table1.")] = None,
    benchmark: Annotated[str | None, typer.Option(help="Only this benchmark, e.g. ALFWorld.")] = None,
    ordering: Annotated[
        bool, typer.Option("--ordering", help="Compare our order of methods with the paper's.")
    ] = False,
    results: Results = RESULTS,
    out: Annotated[Path | None, typer.Option(help="Also write what is printed as CSV.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check every published number: its source, other values of the same quantity, and whether k of n can be it.

    Example: `r3l published --table table1 --benchmark ALFWorld`

    Example: `r3l published --ordering --results results/stored`
    """
    from r3l.report import audit, tables
    from r3l.report import ordering as stop_signals

    if ordering and (table or benchmark):
        raise ConfigError("--ordering compares whole environments; leave --table and --benchmark away")
    rows = _ordering(results) if ordering else _audit(table, benchmark)
    if out:
        tables.write_csv(rows, out)
    content = {"rows": rows} | ({} if ordering else {"summary": audit.summary(rows)})
    print_shown(content, as_json, stop_signals.render(rows) if ordering else audit.render(rows))


def _audit(table: str | None, benchmark: str | None) -> list[dict[str, Any]]:
    from r3l.report import audit
    from r3l.report import published as data

    known = data.load()
    if table:
        check_known("published table", table, {row.table for row in known})
    if benchmark:
        check_known("published benchmark", benchmark, {row.benchmark for row in known})
    chosen = [r for r in known if table in (None, r.table) and benchmark in (None, r.benchmark)]
    if not chosen:
        raise ConfigError(f"published table {table!r} has nothing on {benchmark!r}; leave one of both options away")
    return audit.audit(chosen, known)


def _ordering(results: Path) -> list[dict[str, Any]]:
    from r3l.report import ordering, records
    from r3l.report import published as data

    reference = data.Reference(data.of_table("table1"))
    return ordering.ordering(records.load(records.find(results)), reference)
