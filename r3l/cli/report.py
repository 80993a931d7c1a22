"""Command `r3l report`: one HTML file about all runs."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from r3l.cli.arguments import RESULTS, AsJson, Runs, SeedsPlanned, SeveralResults, found, output, selection_of
from r3l.cli.printing import print_result
from r3l.core.errors import DataError


def report(
    runs: Runs = None,
    results: SeveralResults = None,
    out: Annotated[Path, output("The HTML file.")] = RESULTS / "report.html",
    figures: Annotated[
        Path | None, typer.Option(help="Folder of PNG files. Default: the first RESULTS/figures.")
    ] = None,
    seeds_planned: SeedsPlanned = None,
    as_json: AsJson = False,
) -> None:
    """Write one HTML file about all runs: tables, figures, settings, budgets, trajectories.

    Example: `r3l report --results results/stored --figures results/stored --out results/report.html`
    """
    from r3l.report import html, probes
    from r3l.report.frame import all_tasks
    from r3l.report.reading import read_runs
    from r3l.workflow import plan

    if figures is not None and not figures.is_dir():
        raise DataError(
            f"--figures {figures} is not a directory; draw figures with r3l figure, or leave it out"
        )
    images = sorted((figures or (results or [RESULTS])[0] / "figures").glob("*.png"))
    named = selection_of(None, None, runs).runs
    planned = len(plan.load().seeds) if seeds_planned is None else seeds_planned
    with _without_garbage_collection():
        shown = read_runs(found(named, results), named)
        written = html.write(shown, images, planned, out, probes.read_folders(results or [RESULTS]))
    size = written.stat().st_size
    count = len(all_tasks(shown))
    summary = {"file": str(written), "runs": count, "figures": len(images), "bytes": size}
    print_result(summary, as_json, f"{written}: {count} runs, {len(images)} figures, {size:,} bytes")


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Search for no garbage during the block: nearly all that a report makes of its runs stays in use."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
