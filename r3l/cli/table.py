"""Command `r3l table`: tables of results, offline; and what tables and figures read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from r3l.cli.arguments import (
    RESULTS,
    AsJson,
    Envs,
    Methods,
    Runs,
    SeedsPlanned,
    SeveralResults,
    SomeTier,
    found,
    named,
    named_runs,
    output,
)
from r3l.cli.printing import print_shown
from r3l.core.errors import ConfigError, DataError, did_you_mean, unknown

if TYPE_CHECKING:
    import pandas as pd

    from r3l.report.claim_verdicts import ClaimVerdict
    from r3l.report.claims import Claims
    from r3l.report.feedback_per_token import FeedbackRow
    from r3l.report.table import Table
    from r3l.report.tables import Selection
    from r3l.report.teachers import TeacherRow
    from r3l.workflow.plan import TableConfig

TableFile = Annotated[Path | None, output("Also write the table: NAME.csv, .tex and .md next to it.")]
ProbeFiles = Annotated[list[Path], typer.Argument(help="Files that `r3l probe` wrote.", show_default=False)]


def table(
    name: Annotated[str, typer.Argument(help="A file of configs/tables/: table1, ... (`r3l list tables`).")],
    runs: Runs = None,
    results: SeveralResults = None,
    out: TableFile = None,
    env: Envs = None,
    method: Methods = None,
    tier: SomeTier = None,
    seeds_planned: SeedsPlanned = None,
    empty: Annotated[bool, typer.Option("--empty", help="Also print rows and columns without runs.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make a table from result files, offline; missing methods and seeds are shown as missing.

    Example: `r3l table table1 --out results/table1.csv`
    """
    from r3l.config import names
    from r3l.workflow import plan

    known = {*names("tables"), *SUBCOMMANDS}
    if name not in known:
        raise ConfigError(unknown("table", name, known))
    selection = selection_of(env, method, runs)
    print_table(plan.table_config(name), selection, results, out, tier, seeds_planned, empty, as_json)


def budget(
    runs: Runs = None,
    results: SeveralResults = None,
    out: TableFile = None,
    env: Envs = None,
    method: Methods = None,
    as_json: AsJson = False,
) -> None:
    """Compare the costs of finished runs: rollouts, environment steps, tokens, seconds.

    Example: `r3l table budget --results results/stored --env alfworld`
    """
    from r3l.report.budget import budget_rows, budget_table
    from r3l.report.frame import read_runs

    selection = selection_of(env, method, runs)
    paths = found([*selection.runs], results)
    rows = budget_rows(selection.of(read_runs(paths, selection.runs)))
    flat = rows.to_dict("records")
    printed = budget_table(rows)
    _write_and_print(flat, printed, out, as_json)


def published(
    impossible: Annotated[
        bool, typer.Option("--impossible", help="List the scores that are not a multiple of 1/n.")
    ] = False,
    out: TableFile = None,
    as_json: AsJson = False,
) -> None:
    """Check the paper's numbers: sources, conflicting values, and scores that are not a multiple of 1/n.

    Example: `r3l table published`

    Example: `r3l table published --impossible`
    """
    from r3l.report.published import check, impossible_table, load, summary, summary_table
    from r3l.report.table import to_csv, write_text

    rows = check(load())
    counts = summary(rows)
    shown = impossible_table(rows) if impossible else summary_table(rows)
    flat = [row.flat() for row in rows if row.is_count is False or not impossible]
    if out:
        write_text(to_csv(flat), out)
    print_shown({"rows": flat, "summary": counts}, as_json, shown)


def probe(files: ProbeFiles, out: TableFile = None, as_json: AsJson = False) -> None:
    """Compare models by the files that `r3l probe` wrote.

    Example: `r3l table probe results/probe/gsm8k_0.5b.json results/probe/gsm8k_1.5b.json`
    """
    from r3l.report import probes

    read = probes.read(files)
    flat = probes.flat(read)
    printed = probes.probe_table(read)
    _write_and_print(flat, printed, out, as_json)


def claims(
    results: SeveralResults = None,
    out: TableFile = None,
    env: Envs = None,
    claim: Annotated[
        list[str] | None, typer.Option(help="Only claims with this id, or these words; repeatable.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Test the paper's claims on finished runs and probes: the stored ones, or the ones under --results.

    `--env` and `--claim` choose rows to show; corrections are over all.

    Example: `r3l table claims`

    Example: `r3l table claims --env math --claim GRPO`
    """
    from r3l.report.claims_table import claims_table

    envs = named("--env", env)
    chosen = named_claims(claim)  # before the runs are read, which takes half a minute
    rows, tested = claims_of(results)
    rows = [row for row in rows if row.bench[1] in (envs or [row.bench[1]]) and row.claim.id in chosen]
    if not rows:
        raise DataError(f"no claim has --claim {' and '.join(claim or ['any'])} in --env {env or 'any'}")
    flat = [row.flat(tested.margin) for row in rows]
    printed = claims_table(rows, tested)
    _write_and_print(flat, printed, out, as_json)


def probe_map(results: SeveralResults = None, out: TableFile = None, as_json: AsJson = False) -> None:
    """Compare R3L's lead over GRPO with what probes measured, and print the rule by which `r3l probe`
    predicts it.

    Reads the runs and probes under --results, by default the stored ones. --out results/stored/map.csv
    extends the rule.

    Example: `r3l table map`
    """
    from r3l.report.map_table import map_table
    from r3l.report.probe_map import flat, map_rows, read_map

    rows = map_rows(results) if results else read_map()
    records = flat(rows)
    printed = map_table(rows)
    _write_and_print(records, printed, out, as_json)


def teachers(
    runs: Runs = None,
    results: SeveralResults = None,
    out: TableFile = None,
    env: Envs = None,
    method: Methods = None,
    as_json: AsJson = False,
) -> None:
    """Compare teachers, of finished runs and probes: do they tell successes from failures?

    Example: `r3l table teachers`
    """
    from r3l.report.teachers import flat, teacher_table

    rows = teachers_of(runs, results, env, method)
    records = flat(rows)
    printed = teacher_table(rows)
    _write_and_print(records, printed, out, as_json)


def feedback_per_token(
    results: SeveralResults = None,
    out: TableFile = None,
    env: Envs = None,
    method: Methods = None,
    as_json: AsJson = False,
) -> None:
    """Compare methods that read feedback or have a teacher with GRPO, early, at the end and per token.

    Reads the stored runs, or the runs under --results. Environments and methods that are named with `--env`
    and `--method` have a row even without runs.

    Example: `r3l table feedback_per_token --env webshop,math`
    """
    from r3l.report.feedback_per_token import feedback_table, flat

    rows = feedback_of(results, env, method)
    records, printed = flat(rows), feedback_table(rows)
    _write_and_print(records, printed, out, as_json)


def _write_and_print(
    records: Sequence[Mapping[str, object]], printed: Table, out: Path | None, as_json: bool
) -> None:
    """Write a table to ``out``, if given, and print it; ``records``: its rows as JSON and csv have them."""
    from r3l.report.table import write

    if out:
        write(records, printed, out)
    print_shown({"rows": records}, as_json, printed)


SUBCOMMANDS: dict[str, Callable[..., None]] = {
    "budget": budget,
    "published": published,
    "probe": probe,
    "claims": claims,
    "map": probe_map,
    "teachers": teachers,
    "feedback_per_token": feedback_per_token,
}


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
    """Print a table of configs/tables, made from the named runs and from all runs under ``results``.

    ``empty``: also show rows and columns without runs, as a ``tier`` always does. ``out``: a .csv file to
    write, with .tex and .md next to it. Raises DataError if there is no run, unless ``tier`` is given or the
    table's kind is ``published``.
    """
    from rich.console import Group

    from r3l.report import tables
    from r3l.report.frame import read_runs
    from r3l.report.paper_table import full_table
    from r3l.report.table import write
    from r3l.runs.run_paths import find_further
    from r3l.workflow import plan

    # Read the runs, with their scores on question sets if the table has such columns, and keep those that it
    # shows.
    config = plan.load(plan.workflow_content(tier))
    may_be_none = tier is not None or spec.kind == "published"
    paths = found([*selection.runs], results, may_be_none)
    if spec.question_sets:
        known = {*paths}
        for path in [*paths]:
            paths += [further for further in find_further(path.parent) if further not in known]
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
        empty or tier is not None,
    )
    if out:
        write(built.flat, built.printed, out)
    # Below a table of scores all of its rows follow in full: task groups, differences, costs.
    scored = spec.kind == "scores" and bool(built.rows.seeds_done.any())
    shown = Group(built.printed, "", full_table(built.rows)) if scored else built.printed
    print_shown({"rows": built.flat}, as_json, shown)


def selection_of(env: str | None, method: str | None, runs: list[Path] | None) -> Selection:
    """The environments, methods and runs that a command's options name; --env and --method comma-separated.

    An option that is None restricts nothing: a table then has its own. Raises ConfigError for an unknown
    environment or method, DataError for a directory that is no evaluated run.
    """
    from r3l.report.tables import Selection

    envs = named("--env", env) if env else None
    methods = named("--method", method) if method else None
    return Selection(envs, methods, named_runs(runs))


def teachers_of(
    runs: list[Path] | None, results: list[Path] | None, env: str | None, method: str | None
) -> list[TeacherRow]:
    """The teachers of the runs that the options select, and of the probes under ``results``.

    A teacher is the policy with more in its context (a hint, a solution), whose log-probabilities score
    rollouts. Without ``runs`` and ``results`` the folder results is read. Raises DataError if there is none.
    """
    from r3l.report import probes
    from r3l.report.frame import read_runs
    from r3l.report.teachers import teacher_rows

    selection = selection_of(env, method, runs)
    folders = results or ([] if runs else [RESULTS])
    paths = found([*selection.runs], results, may_be_none=True)
    probed = [one for one in probes.read_folders(folders) if one["env"] in (selection.envs or [one["env"]])]
    rows = teacher_rows(selection.of(read_runs(paths, selection.runs)), [] if selection.methods else probed)
    if not rows:
        where = " or ".join(map(str, folders)) or "these runs"
        raise DataError(
            f"no teacher under {where}: no run there has metrics teacher/*, and no probe measured teachers; "
            "train a method with one (r3l train --method sdar), or probe a model (r3l probe math)"
        )
    return rows


def feedback_of(results: list[Path] | None, env: str | None, method: str | None) -> list[FeedbackRow]:
    """Rows on what feedback costs and gains, by environment and method, from the runs under ``results``.

    None: the stored runs. ``env`` and ``method``: the options' comma-separated names; None: all of the
    table. Raises DataError if none of them has run.
    """
    from r3l.report.feedback_per_token import ENVS, feedback_rows
    from r3l.report.frame import with_further

    envs = named("--env", env) if env else None
    methods = named("--method", method) if method else None
    runs, curves = stored_evidence(results)
    rows = feedback_rows(with_further(curves, runs), envs, methods)
    if not any(row.seeds for row in rows):
        where = " or ".join(map(str, results)) if results else "the stored runs"
        of = ", ".join(methods or ["these methods"])
        raise DataError(
            f"no run in {where} is of {of} in {', '.join(envs or ENVS)}: train some (r3l run --method "
            "grpo,sdar --env math)"
        )
    return rows


def named_claims(claim: list[str] | None) -> set[str]:
    """The ids of the claims that ``--claim`` chooses, each by its id or by words of its text; None: of all.

    Raises ConfigError for words that choose none.
    """
    from r3l.report.claims import load_claims

    texts = {known.id: known.claim for known in load_claims().claims}
    if claim is None:
        return set(texts)
    chosen: set[str] = set()
    for words in claim:
        found_ids = {id for id, text in texts.items() if words == id or words.lower() in text.lower()}
        if not found_ids:
            meant = did_you_mean(words, [*texts, *texts.values()])
            raise ConfigError(f"--claim: no claim has {words!r}{meant}; r3l table claims prints all of them")
        chosen |= found_ids
    return chosen


def claims_of(results: list[Path] | None) -> tuple[list[ClaimVerdict], Claims]:
    """The verdict on each of the paper's claims, from the runs and probes under ``results``, and the claims.

    None: the stored runs and probes. Rows as of claim_verdicts. Raises DataError if the stored runs are
    needed and not on this machine.
    """
    from r3l.evaluation.stored_runs import stored_runs
    from r3l.report import claims, probes
    from r3l.report.claim_verdicts import claim_verdicts

    tested = claims.load_claims()
    runs, curves = stored_evidence(results)
    return claim_verdicts(runs, probes.read_folders(results or [stored_runs()]), tested, curves), tested


def stored_evidence(results: list[Path] | None) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Two frames of runs under ``results``: those for scores, and those with scores at several updates.

    The second frame has the runs in the subfolder curves; the first has the others, hint_gap included. Both
    may be empty. ``results`` None: the stored runs.
    """
    from r3l.evaluation.stored_runs import stored_runs
    from r3l.report.frame import read_runs
    from r3l.runs.run_paths import CURVES, HINT_GAP

    folders = results or [stored_runs()]
    further = [folder / HINT_GAP for folder in folders]
    runs = read_runs(found([], [*folders, *further], may_be_none=True))
    return runs, read_runs(found([], [folder / CURVES for folder in folders], may_be_none=True))
