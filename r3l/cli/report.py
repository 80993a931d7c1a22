"""The verb that writes the HTML report: `r3l report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from r3l.cli.arguments import RESULTS, AsJson, Runs, SeveralResults, found, named_runs, output
from r3l.cli.printing import print_result
from r3l.core.errors import DataError


def report(
    runs: Runs = None,
    results: SeveralResults = None,
    out: Annotated[Path, output("The HTML file.")] = RESULTS / "report.html",
    figures: Annotated[
        Path | None, typer.Option(help="Folder of PNG files. Default: the first RESULTS/figures.")
    ] = None,
    seeds_planned: Annotated[int | None, typer.Option(min=1, help="Default: configs/workflow.yaml.")] = None,
    as_json: AsJson = False,
) -> None:
    """Write one self-contained HTML file about all runs: tables, figures, settings, budgets, training trajectories.

    Example: `r3l report --results results/stored --figures results/stored --out results/report.html`
    """
    from r3l.report import html, records
    from r3l.workflow import plan

    if figures is not None and not figures.is_dir():
        raise DataError(f"--figures {figures} is not a folder; draw figures with r3l figure, or leave the option out")
    images = sorted((figures or (results or [RESULTS])[0] / "figures").glob("*.png"))
    shown = records.load(found(named_runs(runs), results))
    planned = len(plan.load().seeds) if seeds_planned is None else seeds_planned
    written = html.write(shown, images, planned, out)
    summary = {"file": str(written), "runs": len(shown), "figures": len(images), "bytes": written.stat().st_size}
    print_result(summary, as_json, f"{written}: {len(shown)} runs, {len(images)} figures, {summary['bytes']:,} bytes")
