"""Commands that show results, offline: `r3l table`, `r3l figure`, `r3l report`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from r3l.cli.arguments import (
    RESULTS,
    AsJson,
    Envs,
    Methods,
    Runs,
    SeveralResults,
    SomeTier,
    environments_named,
    found,
    methods_named,
    named_runs,
    output,
    refuse_unused,
)
from r3l.cli.printing import print_result, print_shown
from r3l.core.errors import DataError, check_known

if TYPE_CHECKING:
    from r3l.report.claim_verdicts import ClaimVerdict
    from r3l.report.claims import Claims
    from r3l.report.tables import Selection
    from r3l.workflow.plan import TableConfig

PROBE = "probe"  # table and figure of files that r3l probe wrote
CLAIMS = "claims"  # table and figure of configs/claims.yaml
OTHERS = ("budget", "published", PROBE, CLAIMS)  # besides configs/tables
Planned = Annotated[int | None, typer.Option(min=1, help="Seeds planned. Default: configs/workflow.yaml.")]


def table(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="A file of configs/tables/; budget; published; probe; claims.")],
    runs: Runs = None,
    results: SeveralResults = None,
    out: Annotated[Path | None, output("Also write the table: NAME.csv, .tex and .md beside it.")] = None,
    env: Envs = None,
    method: Methods = None,
    tier: SomeTier = None,
    seeds_planned: Planned = None,
    empty: Annotated[bool, typer.Option("--empty", help="Print rows and columns without runs, too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make a table from result files, offline; missing methods and seeds are shown as missing.

    `published` checks the paper's numbers: their sources, conflicting values, and whether a score is a multiple of 1/n.
    `probe` compares models by the files that `r3l probe` wrote. `claims` gives the paper's claims, each with
    the verdict of the stored runs and probes (or of those under --results).

    Example: `r3l table claims`

    Example: `r3l table table1 --out results/table1.csv`

    Example: `r3l table probe results/probe/gsm8k_qwen2.5-coder-0.5b.json results/probe/gsm8k_qwen2.5-coder-1.5b.json`

    Example: `r3l table published`
    """
    from r3l.workflow import plan

    specs = plan.tables()
    check_known("table", name, {*specs, *OTHERS})
    if name == "published":
        refuse_unused(ctx, "table published", {"out"})
        _print_published(out, as_json)
        return
    if name == PROBE:
        refuse_unused(ctx, "table probe", {"out"})
        _print_probes(_probe_files(runs), out, as_json)
        return
    if name == CLAIMS:
        refuse_unused(ctx, "table claims", {"results", "out"})
        _print_claims(results, out, as_json)
        return
    named = named_runs(runs)
    selection = _selection(env, method, named)
    if name == "budget":
        refuse_unused(ctx, "table budget", {"results", "out", "env", "method"})
        _print_budget(selection, found(named, results), out, as_json)
        return
    print_table(specs[name], selection, results, out, tier, seeds_planned, empty, as_json)


def print_table(
    spec: TableConfig,
    selection: Selection,
    results: list[Path] | None = None,
    out: Path | None = None,
    tier: str | None = None,
    seeds_planned: int | None = None,
    empty: bool = False,
    as_json: bool = False,
) -> None:
    """Print a table of configs/tables, made from the runs that are named and those under ``results``."""
    from r3l.report import tables
    from r3l.report.frame import read_runs
    from r3l.runs.run_paths import find_further
    from r3l.workflow import plan

    config = plan.load(plan.workflow_content(tier))
    may_be_none = tier is not None or spec.kind == "published"
    paths = found([*selection.runs], results, may_be_none)
    if spec.question_sets:
        known = {*paths}
        paths += [further for path in paths for further in find_further(path.parent) if further not in known]
    runs = read_runs(paths, selection.runs)
    runs = tables.selected(runs[runs.tier == tier] if tier else runs, spec, config, selection)
    if not len(runs) and not may_be_none:
        where = " or ".join(map(str, results or ([] if selection.runs else [RESULTS])))
        envs = ", ".join(selection.envs or config.columns(spec))
        raise DataError(f"no run under {where} belongs to {spec.table} ({envs})")
    built = tables.build(
        spec,
        runs,
        tables.methods_of(runs, spec, config, selection),
        len(config.seeds) if seeds_planned is None else seeds_planned,
        config.tier,
        config.benches(spec) if tier and not selection.envs else (),
    )
    built = replace(built, empty=empty or tier is not None)
    if out:
        built.write(out)
    print_shown({"rows": built.flat()}, as_json, built.to_terminal())


def _selection(env: str | None, method: str | None, runs: list[Path]) -> Selection:
    from r3l.report.tables import Selection

    return Selection(environments_named(env), methods_named(method), runs)


def _print_budget(selection: Selection, paths: list[Path], out: Path | None, as_json: bool) -> None:
    from r3l.report.budget import budget_rows, budget_table
    from r3l.report.frame import read_runs
    from r3l.report.render import to_terminal, write

    rows = budget_rows(selection.of(read_runs(paths, selection.runs)))
    flat, printed = rows.to_dict("records"), budget_table(rows)
    if out:
        write(flat, printed, out)
    print_shown({"rows": flat}, as_json, to_terminal(printed))


def _print_published(out: Path | None, as_json: bool) -> None:
    from r3l.report.published import load
    from r3l.report.published_checks import check, summary, summary_table
    from r3l.report.render import to_csv, to_terminal, write_text

    rows = check(load())
    flat = [row.flat() for row in rows]
    if out:
        write_text(to_csv(flat), out)
    print_shown({"rows": flat, "summary": summary(rows)}, as_json, to_terminal(summary_table(rows)))


def _probe_files(runs: list[Path] | None) -> list[Path]:
    if not runs:
        raise DataError("name the files to compare, which r3l probe wrote: r3l table probe results/probe/*.json")
    return runs


def _print_probes(paths: list[Path], out: Path | None, as_json: bool) -> None:
    from r3l.report import probes
    from r3l.report.render import to_terminal, write

    read = probes.read(paths)
    flat, printed = probes.flat(read), probes.probe_table(read)
    if out:
        write(flat, printed, out)
    print_shown({"rows": flat}, as_json, to_terminal(printed))


def _claims(results: list[Path] | None) -> tuple[list[ClaimVerdict], Claims]:
    """Of the runs and probes under ``results``, by default the stored ones."""
    from r3l.evaluation.stored_runs import stored_runs
    from r3l.report import claims, probes, records
    from r3l.report.claim_verdicts import claim_verdicts

    folders = results or [stored_runs()]
    of = claims.load_claims()
    runs = records.load(found([], folders, may_be_none=True))
    return claim_verdicts(runs, probes.read_folders(folders), of), of


def _print_claims(results: list[Path] | None, out: Path | None, as_json: bool) -> None:
    from r3l.report.claims_table import claims_table
    from r3l.report.render import to_terminal, write

    rows, of = _claims(results)
    flat, printed = [row.flat(of.margin) for row in rows], claims_table(rows, of)
    if out:
        write(flat, printed, out)
    print_shown({"rows": flat}, as_json, to_terminal(printed))


def figure(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="learning_curves, ... (`r3l list figures`); probe; claims.")],
    runs: Runs = None,
    results: SeveralResults = None,
    out: Annotated[Path, output("Folder of NAME.pdf and NAME.png, or one file.", folder=True)] = RESULTS / "figures",
    table: Annotated[str | None, typer.Option(help="Show the runs of this table. Default: the figure's own.")] = None,
    env: Envs = None,
    method: Methods = None,
    as_json: AsJson = False,
) -> None:
    """Draw a figure from result files, offline, as PDF and PNG; `probe` from those that `r3l probe` wrote, `claims` as
    the table of this name.

    Example: `r3l figure learning_curves --method grpo,r3l --out results/figures`
    """
    from r3l.report import figures, probes
    from r3l.report.figures import forest
    from r3l.report.frame import read_runs
    from r3l.report.tables import selected
    from r3l.workflow import plan

    specs = plan.tables()
    check_known("figure", name, {*figures.FIGURES, PROBE, CLAIMS})
    if name == PROBE:
        refuse_unused(ctx, "figure probe", {"out"})
        written = [str(path) for path in probes.draw(probes.read(_probe_files(runs)), out)]
        print_result({"figure": name, "files": written}, as_json, "\n".join(written))
        return
    if name == CLAIMS:
        refuse_unused(ctx, "figure claims", {"results", "out"})
        written = [str(path) for path in forest.draw(*_claims(results), out)]
        print_result({"figure": name, "files": written}, as_json, "\n".join(written))
        return
    check_known("table", table or figures.FIGURES[name].table, specs)
    spec, named = specs[table or figures.FIGURES[name].table], named_runs(runs)
    shown = selected(read_runs(found(named, results), named), spec, plan.load(), _selection(env, method, named))
    written = [str(path) for path in figures.draw(name, shown, out, spec)]
    print_result({"figure": name, "files": written}, as_json, "\n".join(written))


def report(
    runs: Runs = None,
    results: SeveralResults = None,
    out: Annotated[Path, output("The HTML file.")] = RESULTS / "report.html",
    figures: Annotated[
        Path | None, typer.Option(help="Folder of PNG files. Default: the first RESULTS/figures.")
    ] = None,
    seeds_planned: Planned = None,
    as_json: AsJson = False,
) -> None:
    """Write one self-contained HTML file about all runs: tables, figures, settings, budgets, training trajectories.

    Example: `r3l report --results results/stored --figures results/stored --out results/report.html`
    """
    from r3l.report import html, probes
    from r3l.report.frame import read_runs, whole
    from r3l.workflow import plan

    if figures is not None and not figures.is_dir():
        raise DataError(f"--figures {figures} is not a directory; draw figures with r3l figure, or leave it out")
    images = sorted((figures or (results or [RESULTS])[0] / "figures").glob("*.png"))
    named = named_runs(runs)
    shown = read_runs(found(named, results), named)
    planned = len(plan.load().seeds) if seeds_planned is None else seeds_planned
    written = html.write(shown, images, planned, out, probes.read_folders(results or [RESULTS]))
    size, count = written.stat().st_size, len(whole(shown))
    summary = {"file": str(written), "runs": count, "figures": len(images), "bytes": size}
    print_result(summary, as_json, f"{written}: {count} runs, {len(images)} figures, {size:,} bytes")
