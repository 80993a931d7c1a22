"""Verbs about many runs: what of the grid is done, and a method against stored baselines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from r3l.cli.cell import line, make
from r3l.cli.common import (
    RESULTS,
    AsJson,
    Envs,
    Results,
    Seeds,
    Tier,
    check_known,
    configured,
    listed,
    numbers,
    print_result,
    print_shown,
)
from r3l.core.errors import ConfigError
from r3l.core.paths import STORED


def status(
    table: Annotated[
        str, typer.Option(help="The table whose runs are looked at: a file of configs/tables/.")
    ] = "table1",
    tier: Annotated[str | None, typer.Option(help="Default: configs/workflow.yaml.")] = None,
    env: Envs = None,
    seeds: Seeds = None,
    grid: Annotated[str | None, typer.Option(help="core or full rows.")] = None,
    results: Results = RESULTS,
    as_json: AsJson = False,
) -> None:
    """What of a table's runs is done, running, stopped, failed or missing, and how long the rest may take.

    Times come from runs that are done, here or stored.

    Example: `r3l status --grid full --seeds 0,1,2,3,4`
    """
    from r3l.config import TierConfig, load
    from r3l.report import expected_cost
    from r3l.report.status import status_table
    from r3l.report.table.terminal import to_terminal
    from r3l.runs.places import find_runs
    from r3l.workflow import plan
    from r3l.workflow import status as surveys

    known = plan.tables()
    check_known("table", table, known)
    config = configured(tier=tier, grid=grid, envs=listed(env), seeds=numbers(seeds))
    runs = plan.runs(config, known[table])
    found = surveys.survey(runs, results, [path.parent for path in find_runs(STORED)])
    content = {"table": table, "runs": [status.as_json() for status in found]}
    print_shown(content, as_json, to_terminal(status_table(found)))
    if load("tiers", config.tier, TierConfig).engine == "trinity" and not as_json:
        left = [status.run for status in found if status.state != "done"]
        print(f"Left: {expected_cost.summary(expected_cost.costs(left), len(config.seeds))}")


def compare(
    method: Annotated[str, typer.Argument(help="A file of configs/methods/ or $R3L_METHODS, or a variant.")],
    against: Annotated[str, typer.Option(help="Methods, by commas; or all: those of Table 1.")] = "grpo,r3l",
    tier: Tier = "nano",
    env: Envs = None,
    seeds: Seeds = "0,1,2",
    group: Annotated[str, typer.Option(help="Of the test tasks: all, easy, hard.")] = "all",
    results: Results = RESULTS,
    stored: Annotated[
        Path | None, typer.Option(help="Where the baselines lie. Default: those of this project.")
    ] = None,
    cores: Annotated[str, typer.Option(help="Given to snakemake: runs side by side.")] = "all",
    offline: Annotated[bool, typer.Option(help="Train nothing; compare what is there.")] = False,
    out: Annotated[Path | None, typer.Option(help="Also write the rows as JSON.")] = None,
    as_json: AsJson = False,
) -> None:
    """Train a method where it is not trained yet, then compare it with the stored baselines, seed by seed.

    Example: `r3l compare raft --env alfworld --seeds 0,1,2`
    """
    from r3l.core.files import writable, write_json_atomic
    from r3l.report import compare as comparison
    from r3l.report import records
    from r3l.report.table.terminal import to_terminal
    from r3l.runs.places import find_runs
    from r3l.workflow import plan

    if results != RESULTS and not offline:
        raise ConfigError(f"--results is {results}, but runs are made under {RESULTS}/; add --offline to read it")
    config = configured(tier=tier, methods=[method], envs=listed(env), seeds=numbers(seeds))
    runs = plan.grid(config, config.envs, [method])
    opponents = _opponents(method, against)
    plan.grid(config, config.envs, opponents)  # a name that there is not is an error, before anything trains
    if not offline:
        targets = [str(results / path / "evaluation.json") for path in runs]
        given = {"tier": tier, "methods": [method], "envs": config.envs, "seeds": config.seeds}
        make(line(targets, given, ["--cores", cores]))
    own = [path for path in (results / run / "evaluation.json" for run in runs) if path.is_file()]
    others = [p for p in find_runs(stored or STORED) if _is_one_of(p, tier, config.envs, opponents)]
    rows = comparison.compare(records.load([*own, *others]), method, opponents, group)
    if out:
        with writable(out):
            write_json_atomic(out, rows)
    print_shown({"rows": rows}, as_json, to_terminal(comparison.comparison_table(rows)))
    for row in [] if as_json else rows:
        for warning in row["warnings"]:
            print(f"warning: {row['env']}, {method} against {row['against']}: {warning}")


def store(
    results: Results = RESULTS,
    out: Annotated[Path | None, typer.Option(help="Default: results/stored of this project.")] = None,
    as_json: AsJson = False,
) -> None:
    """Keep finished runs for good: verified, lines compressed, without checkpoints.

    Example: `r3l store --results results`
    """
    from r3l.evaluation import stored
    from r3l.runs.places import find_runs

    target = out or STORED
    written = stored.store([path.parent for path in find_runs(results)], results, target)
    files = [str(path) for path in written]
    print_result({"stored": files}, as_json, f"{len(files)} runs stored in {target}")


def verify(
    run_dirs: Annotated[list[Path] | None, typer.Argument(help="Run directories. Default: the stored runs.")] = None,
    results: Annotated[Path | None, typer.Option(help="All finished runs below this folder.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compute the numbers of finished runs again from their raw lines; exit code 2 at the first that differs.

    Example: `r3l verify results/nano/alfworld/nano/r3l/seed0`
    """
    from r3l.evaluation import stored
    from r3l.runs.places import find_runs

    chosen = run_dirs or [path.parent for path in find_runs(results or STORED)]
    for run_dir in chosen:
        stored.verify(run_dir)
    print_result({"verified": len(chosen)}, as_json, f"{len(chosen)} runs: every number follows from the raw lines")


def _opponents(method: str, against: str) -> list[str]:
    from r3l.workflow import plan

    everyone = plan.tables()["table1"].methods if against == "all" else against.split(",")
    others = [other for other in everyone if other != method]
    if not others:
        raise ConfigError(f"--against is {against!r}; name a method other than {method!r}, or all")
    return others


def _is_one_of(evaluation: Path, tier: str, envs: list[str], methods: list[str]) -> bool:
    """By its place: TIER/ENV/MODEL/METHOD/seedN/evaluation.json."""
    found_tier, env, _, method = evaluation.parts[-6:-2]
    return found_tier == tier and env in envs and method in methods
