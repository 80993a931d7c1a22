"""Verbs about finished runs: store, verify."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from r3l.cli.arguments import RESULTS, AsJson, Results, output
from r3l.cli.printing import print_result
from r3l.core.errors import DataError
from r3l.files.paths import KEPT


def store(
    results: Results = RESULTS,
    out: Annotated[Path | None, output("Default: results/stored of this project.", folder=True)] = None,
    as_json: AsJson = False,
) -> None:
    """Keep finished runs and tunings for good: runs verified, their lines compressed, without checkpoints.

    In this project's results/stored runs of a tree with uncommitted changes are refused.

    Example: `r3l store --results results`
    """
    from r3l.evaluation import stored
    from r3l.runs.places import find_runs

    target = out or KEPT
    tunings = stored.store_tunings(results, target)
    runs = find_runs(results, may_be_none=bool(tunings))
    written = stored.store([path.parent for path in runs], results, target)
    content = {"stored": [str(path) for path in written], "tunings": [str(path) for path in tunings]}
    also = f", {len(tunings)} tunings" if tunings else ""
    print_result(content, as_json, f"{len(written)} runs{also} stored in {target}")


def verify(
    run_dirs: Annotated[list[Path] | None, typer.Argument(help="Run directories. Default: the stored runs.")] = None,
    results: Annotated[Path | None, typer.Option(help="All finished runs below this folder.")] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse runs of a tree with uncommitted changes; else they are listed.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Prove finished runs: numbers from raw lines, names, task ids, digests; exit code 2 at the first that differs.

    It also says which runs were made from uncommitted code, and under which text of docs/preregistration.md.

    Example: `r3l verify results/nano/alfworld/alfworld-1.5m-hints/r3l/seed0`
    """
    from r3l.evaluation.provenance import origins
    from r3l.evaluation.verification import verify as verify_run
    from r3l.runs.places import find_runs
    from r3l.runs.stored_archive import stored_runs

    checked = run_dirs or [path.parent for path in find_runs(results or stored_runs())]
    for run_dir in checked:
        verify_run(run_dir)
    found = origins(checked)
    lines = [f"{len(checked)} runs: every number follows from the raw lines, and no file has changed", *found.lines()]
    print_result({"verified": len(checked), **found.as_json()}, as_json, "\n".join(lines))
    if strict and found.dirty:
        raise DataError(
            f"{len(found.dirty)} of {len(checked)} runs were made from a tree with uncommitted changes; make them "
            "again from a clean clone"
        )
