"""Command `r3l table`: tables of results, offline."""

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
    configured,
    found,
    named,
    output,
    selection_of,
)
from r3l.cli.evidence import claims_of, feedback_rows_of, map_of, named_claims, teachers_of
from r3l.cli.printing import print_shown
from r3l.core.errors import ConfigError, DataError, unknown

if TYPE_CHECKING:
    from r3l.report.table import Table

TableFile = Annotated[
    Path | None, output("NAME.csv: also write the table there, and as .tex and .md.", ending=".csv")
]
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
    full: Annotated[
        bool, typer.Option("--full", help="Print each row of scores with task groups, differences, costs.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make a table from result files, offline; missing methods and seeds are shown as missing.

    Example: `r3l table table1 --out results/table1.csv`

    Example: `r3l table table1 --env alfworld --method grpo,r3l --full`
    """
    from r3l.config import names
    from r3l.report import tables
    from r3l.report.full_table import full_table
    from r3l.report.reading import read_runs
    from r3l.report.table import write
    from r3l.runs.run_paths import find_further
    from r3l.workflow import plan

    known = {*names("tables"), *SUBCOMMANDS}
    if name not in known:
        raise ConfigError(unknown("table", name, known))
    spec = plan.table_config(name)
    selection = selection_of(env, method, runs)
    if full and spec.kind != "scores":
        raise ConfigError(f"--full: {name} is a table of {spec.kind}, not of scores; leave the option out")
    config = configured(tier)

    # Read the runs, with their scores on question sets if the table has such columns, and keep those that it
    # shows. A tier's planned rows, and published numbers, need no run; of environments that are named only
    # runs are shown.
    may_be_none = (tier is not None and not selection.envs) or spec.kind == "published"
    paths = found(selection.runs, results, may_be_none)
    if spec.question_sets:
        further = [one for path in paths for one in find_further(path.parent)]
        paths = [*dict.fromkeys([*paths, *further])]  # a run may be named by its score on a question set
    every = read_runs(paths, selection.runs)
    of_tier = every[every.tier == tier] if tier else every
    shown, methods = tables.selected(of_tier, spec, config, selection)
    if not len(shown) and not may_be_none:
        where = " or ".join(map(str, results or ([] if selection.runs else [RESULTS])))
        envs = ", ".join(selection.envs or config.columns(spec))
        at_tier = f" at tier {tier}" if tier else ""
        raise DataError(
            f"no run under {where} belongs to {name} ({envs}){at_tier}: name other --env, --method, --tier or "
            "--results, or make the runs (`r3l run`)"
        )

    # Make its rows and both layouts; the files have the paper's.
    built = tables.build(
        spec,
        shown,
        methods,
        len(config.seeds) if seeds_planned is None else seeds_planned,
        config.tier,
        config.benches(spec) if tier and not selection.envs else (),
        empty or tier is not None,
    )
    if out:
        write(built.flat, built.printed, out)
    in_full = full and built.rows.seeds_done.any()
    print_shown({"rows": built.flat}, as_json, full_table(built.rows) if in_full else built.printed)


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
    from r3l.report.reading import read_runs

    selection = selection_of(env, method, runs)
    paths = found(selection.runs, results)
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
    flat = [row.flat() for row in rows]
    printed = claims_table(rows, tested)
    _write_and_print(flat, printed, out, as_json)


def probe_map(results: SeveralResults = None, out: TableFile = None, as_json: AsJson = False) -> None:
    """Compare R3L's lead over GRPO with what probes measured, and print the rule by which `r3l probe`
    predicts it.

    Reads the runs and probes under --results, by default the stored ones. --out results/stored/map.csv
    extends the rule.

    Example: `r3l table map`
    """
    from r3l.report.map_rule import KNOWN_BEFORE
    from r3l.report.map_table import map_table
    from r3l.report.probe_map import flat, read_map

    rows = map_of(results)
    records = flat(rows)
    printed = map_table(rows, read_map(KNOWN_BEFORE))
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

    rows = feedback_rows_of(results, env, method)
    records = flat(rows)
    printed = feedback_table(rows)
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
