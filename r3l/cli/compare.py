"""The verb that compares a method with stored baselines: `r3l compare`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from r3l.cli.arguments import (
    RESULTS,
    AsJson,
    Envs,
    SeveralResults,
    StoredRuns,
    Tier,
    check_cores,
    configured,
    listed,
    numbers,
    output,
)
from r3l.cli.printing import print_shown
from r3l.cli.workflow import line, make, placement
from r3l.core.errors import ConfigError

DEFAULT_SEEDS = "0,1,2"


def compare(
    method: Annotated[str, typer.Argument(help="A file of configs/methods/ or $R3L_METHODS, or a variant.")],
    against: Annotated[str, typer.Option(help="Methods, by commas; or all: those of Table 1.")] = "grpo,r3l",
    tier: Tier = "nano",
    env: Envs = None,
    seeds: Annotated[
        str | None, typer.Option(help="Seeds, by commas. Default: 0,1,2; with --offline all that both methods have.")
    ] = None,
    group: Annotated[str, typer.Option(help="Of the test tasks: all, easy, hard.")] = "all",
    results: SeveralResults = None,
    stored: StoredRuns = None,
    cores: Annotated[str, typer.Option(help="Given to snakemake: runs side by side.")] = "all",
    offline: Annotated[bool, typer.Option(help="Train nothing; compare what is there.")] = False,
    out: Annotated[Path | None, output("Also write the rows as JSON.")] = None,
    as_json: AsJson = False,
) -> None:
    """Train a method where it is not trained yet, then compare it with the stored baselines, seed by seed.

    Example: `r3l compare raft --env alfworld --seeds 0,1,2`
    """
    from r3l.files.writing import writable, write_json_atomic
    from r3l.report import compare as comparison
    from r3l.report import records
    from r3l.report.render import to_terminal
    from r3l.runs.changed_code import set_aside_changed
    from r3l.runs.places import first_found, runs_of
    from r3l.runs.stored_archive import stored_runs
    from r3l.workflow import plan

    if results and not offline:
        raise ConfigError(f"--results is {results[0]}, but runs are made under {RESULTS}/; add --offline to read it")
    check_cores(cores)
    config = configured(tier=tier, methods=[method], envs=listed(env, "--env"), seeds=numbers(seeds or DEFAULT_SEEDS))
    runs = plan.grid(config, config.envs, [method])
    opponents = opponents_of(method, against, tier)
    plan.grid(config, config.envs, opponents)  # a name that there is not is an error, before anything trains
    if not offline:
        for path, run in runs.items():  # before snakemake deletes what it makes anew
            set_aside_changed(RESULTS / path, run)
        targets = [str(RESULTS / path / "evaluation.json") for path in runs]
        changes = {"tier": tier, "methods": [method], "envs": config.envs, "seeds": config.seeds}
        make(line(targets, changes, placement(None, cores)), runs)
    wanted = None if offline and seeds is None else config.seeds
    folders = results or [RESULTS]
    own = own_runs(folders, sorted({run.cell for run in runs.values()}), wanted)
    found = [runs_of(stored or stored_runs(), opponents, tier, config.envs)]
    found += [runs_of(folder, opponents, tier, config.envs, may_be_none=True) for folder in folders]
    rows = comparison.compare(records.load([*own, *first_found(found)]), method, opponents, group)
    if out:
        with writable(out):
            write_json_atomic(out, [row.flat() for row in rows])
    print_shown({"rows": [row.flat() for row in rows]}, as_json, to_terminal(comparison.comparison_table(rows)))
    for row in [] if as_json else rows:
        for warning in row.warnings:
            print(f"warning: {row.env}, {method} against {row.against}: {warning}")


def offline_command(method: str, tier: str, envs: Iterable[str]) -> str:
    """What compares finished runs of ``method`` with the stored baselines, or with one's own where none are stored."""
    where = "" if tier == "nano" else f" --tier {tier}"
    return f"r3l compare {method} --env {','.join(sorted(set(envs)))}{where} --offline"


def own_runs(folders: list[Path], cells: list[str], seeds: list[int] | None) -> list[Path]:
    """The evaluated runs of ``cells`` under ``folders``; ``seeds`` None: of all seeds."""
    pattern = "{}/seed*/evaluation.json"
    found = [path for folder in folders for cell in cells for path in sorted(folder.glob(pattern.format(cell)))]
    names = None if seeds is None else {f"seed{seed}" for seed in seeds}
    return [path for path in found if names is None or path.parent.name in names]


def opponents_of(method: str, against: str, tier: str) -> list[str]:
    """The methods of ``--against``, by commas, or all of Table 1, without ``method``. Raises ConfigError for none."""
    from r3l.workflow import plan

    table1 = configured(tier=tier, grid="full").rows(plan.tables()["table1"])
    others = [
        other for other in (table1 if against == "all" else listed(against, "--against") or []) if other != method
    ]
    if not others:
        raise ConfigError(f"--against is {against!r}; name a method other than {method!r}, or all")
    return others
