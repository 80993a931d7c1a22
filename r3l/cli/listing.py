"""Verbs that list what there is: methods, options, envs."""

from __future__ import annotations

from typing import Annotated

import typer

from r3l.cli.arguments import AsJson, Envs, Tier, configured, listed
from r3l.cli.printing import print_result, print_rows, print_shown


def methods(tier: Tier = "nano", as_json: AsJson = False) -> None:
    """The table of methods and options, made from the configs: a column a profile.

    Example: `r3l methods --json`
    """
    from r3l.report import options
    from r3l.report.render import to_terminal

    rows = options.methods(tier)
    print_shown({"methods": rows}, as_json, to_terminal(options.methods_table(rows)))


def list_options(
    differences: Annotated[
        bool,
        typer.Option("--differences", help="Only settings in which paper and release differ, and whose hold."),
    ] = False,
    count: Annotated[bool, typer.Option("--count", help="Of the differences their number in one sentence.")] = False,
    tier: Tier = "nano",
    env: Envs = None,
    as_json: AsJson = False,
) -> None:
    """Every hyperparameter: allowed values, default, meaning, source, and the methods or environments that have it.

    Example: `r3l options`

    Example: `r3l options --differences --tier paper`
    """
    from r3l.config.options import environment_options, method_options, run_options

    if differences or count:
        _differences(tier, env, count, as_json)
        return
    print_rows(
        {"options": [vars(option) for option in (*method_options(), *environment_options(), *run_options())]}, as_json
    )


def _differences(tier: str, env: str | None, count: bool, as_json: bool) -> None:
    """Of the methods of Table 1."""
    from r3l.report import differences
    from r3l.report.render import to_terminal
    from r3l.workflow import plan

    config = configured(tier=tier, envs=listed(env, "--env"))
    rows = differences.differences(tier, config.envs, config.rows(plan.tables()["table1"]))
    if count:
        print_result({"differences": len(rows)}, as_json, differences.summary(rows))
    else:
        print_shown({"differences": rows}, as_json, to_terminal(differences.differences_table(rows)))


def envs(as_json: AsJson = False) -> None:
    """List the environments with their tiers and task sets.

    Example: `r3l envs`
    """
    from r3l.config import EnvConfig, load, names

    rows = [
        {"env": e.env, "label": e.label, "tier": tier, **settings.model_dump()}
        for e in (load("envs", name, EnvConfig) for name in names("envs"))
        for tier, settings in e.tiers.items()
    ]
    print_rows({"envs": rows}, as_json)
