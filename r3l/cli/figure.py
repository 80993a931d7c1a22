"""Command `r3l figure`: figures of results, offline."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated

import typer

from r3l.cli.arguments import (
    RESULTS,
    AsJson,
    Envs,
    Methods,
    Runs,
    SeveralResults,
    found,
    output,
    selection_of,
)
from r3l.cli.evidence import claims_of, feedback_rows_of, map_of, stored_evidence, teachers_of
from r3l.cli.printing import print_result
from r3l.cli.table import ProbeFiles
from r3l.core.errors import check_known

FigureFiles = Annotated[Path, output("Folder of NAME.pdf and NAME.png, or one file.", folder=True)]
FOLDER = RESULTS / "figures"


def figure(
    name: Annotated[str, typer.Argument(help="learning_curves, ... (`r3l list figures`).")],
    runs: Runs = None,
    results: SeveralResults = None,
    out: FigureFiles = FOLDER,
    table: Annotated[
        str | None, typer.Option(help="Show the runs of this table. Default: the figure's own.")
    ] = None,
    env: Envs = None,
    method: Methods = None,
    as_json: AsJson = False,
) -> None:
    """Draw a figure from result files, offline, as PDF and PNG.

    Example: `r3l figure learning_curves --method grpo,r3l --out results/figures`
    """
    from r3l.report import figures
    from r3l.report.reading import read_runs
    from r3l.report.tables import selected
    from r3l.workflow import plan

    check_known("figure", name, {*figures.FIGURES, *SUBCOMMANDS})
    spec = plan.table_config(table or figures.FIGURES[name].table)
    selection = selection_of(env, method, runs)
    every = read_runs(found(selection.runs, results), selection.runs)
    shown, _ = selected(every, spec, plan.load(), selection)
    _print_drawn(name, figures.draw(name, shown, out, spec), as_json)


def figure_of_probes(files: ProbeFiles, out: FigureFiles = FOLDER, as_json: AsJson = False) -> None:
    """Draw the comparison of models by the files that `r3l probe` wrote.

    Example: `r3l figure probe results/probe/gsm8k_0.5b.json --out results/figures`
    """
    from r3l.report import probes
    from r3l.report.figures import probes as figure

    _print_drawn("probe", figure.draw(probes.read(files), out), as_json)


def figure_of_claims(
    results: SeveralResults = None, out: FigureFiles = FOLDER, as_json: AsJson = False
) -> None:
    """Draw the paper's claims with effects and intervals: of the stored runs, or under --results.

    Example: `r3l figure claims --out results/figures`
    """
    from r3l.report.figures import forest

    _print_drawn("claims", forest.draw(*claims_of(results), out), as_json)


def figure_of_map(results: SeveralResults = None, out: FigureFiles = FOLDER, as_json: AsJson = False) -> None:
    """Draw R3L's lead over GRPO over what probes measured: of the stored map, or of runs under --results.

    Example: `r3l figure map --out results/figures`
    """
    from r3l.report.figures import probe_map

    _print_drawn("map", probe_map.draw(map_of(results), out), as_json)


def figure_of_held_out(
    results: SeveralResults = None, out: FigureFiles = FOLDER, as_json: AsJson = False
) -> None:
    """Draw how R3L learns against GRPO and itself without reflection: of the stored runs, or under --results.

    Example: `r3l figure held_out --out results/figures`
    """
    from r3l.report.figures import held_out
    from r3l.report.frame import with_further

    runs, curves = stored_evidence(results)
    _print_drawn("held_out", held_out.draw(with_further(curves, runs), out), as_json)


def figure_of_teachers(
    runs: Runs = None,
    results: SeveralResults = None,
    out: FigureFiles = FOLDER,
    env: Envs = None,
    method: Methods = None,
    as_json: AsJson = False,
) -> None:
    """Draw whether teachers tell successes from failures, of finished runs and probes.

    Example: `r3l figure teachers --out results/figures`
    """
    from r3l.report.figures import teachers

    _print_drawn("teachers", teachers.draw(teachers_of(runs, results, env, method), out), as_json)


def figure_of_feedback(
    results: SeveralResults = None,
    out: FigureFiles = FOLDER,
    env: Envs = None,
    method: Methods = None,
    as_json: AsJson = False,
) -> None:
    """Draw the gain from feedback per token as PDF and PNG, of the stored runs or the runs under --results.

    Example: `r3l figure feedback_per_token --out results/figures`
    """
    from r3l.report.figures import feedback_per_token

    _print_drawn(
        "feedback_per_token", feedback_per_token.draw(feedback_rows_of(results, env, method), out), as_json
    )


SUBCOMMANDS: dict[str, Callable[..., None]] = {
    "probe": figure_of_probes,
    "claims": figure_of_claims,
    "map": figure_of_map,
    "held_out": figure_of_held_out,
    "teachers": figure_of_teachers,
    "feedback_per_token": figure_of_feedback,
}


def _print_drawn(name: str, files: Iterable[Path], as_json: bool) -> None:
    """Print the files of a figure."""
    written = [str(path) for path in files]
    print_result({"figure": name, "files": written}, as_json, "\n".join(written))
