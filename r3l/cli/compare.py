"""The verb that compares a method with stored baselines: `r3l compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from r3l.cli.arguments import RESULTS, AsJson, Envs, Results, Seeds, Tier, check_cores, configured, listed, numbers
from r3l.cli.printing import print_shown
from r3l.cli.workflow import line, make, placement
from r3l.core.errors import ConfigError


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
    from r3l.runs.changed_code import set_aside_changed
    from r3l.runs.stored_archive import stored_runs
    from r3l.workflow import plan

    if results != RESULTS and not offline:
        raise ConfigError(f"--results is {results}, but runs are made under {RESULTS}/; add --offline to read it")
    check_cores(cores)
    config = configured(tier=tier, methods=[method], envs=listed(env, "--env"), seeds=numbers(seeds))
    runs = plan.grid(config, config.envs, [method])
    opponents = opponents_of(method, against, tier)
    plan.grid(config, config.envs, opponents)  # a name that there is not is an error, before anything trains
    if not offline:
        for path, run in runs.items():  # before snakemake deletes what it makes anew
            set_aside_changed(results / path, run)
        targets = [str(results / path / "evaluation.json") for path in runs]
        changes = {"tier": tier, "methods": [method], "envs": config.envs, "seeds": config.seeds}
        make(line(targets, changes, placement(None, cores)), runs)
    own = [path for path in (results / run / "evaluation.json" for run in runs) if path.is_file()]
    others = runs_of(stored or stored_runs(), tier, config.envs, opponents)
    rows = comparison.compare(records.load([*own, *others]), method, opponents, group)
    if out:
        with writable(out):
            write_json_atomic(out, rows)
    print_shown({"rows": rows}, as_json, to_terminal(comparison.comparison_table(rows)))
    for row in [] if as_json else rows:
        for warning in row["warnings"]:
            print(f"warning: {row['env']}, {method} against {row['against']}: {warning}")


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


def runs_of(results: Path, tier: str, envs: list[str] | None, methods: list[str]) -> list[Path]:
    """Runs by their places, TIER/ENV/MODEL/METHOD/seedN/evaluation.json. ``envs`` None: in all environments."""
    from r3l.runs.places import find_runs

    places = [(path, path.parts[-6:-2]) for path in find_runs(results)]
    return [
        path
        for path, (of_tier, env, _, method) in places
        if of_tier == tier and env in (envs or [env]) and method in methods
    ]
