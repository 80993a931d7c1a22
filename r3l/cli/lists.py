"""`r3l list`: methods, environments, models, tiers, tables and figures; options, and the values of a run."""

from __future__ import annotations

from typing import Annotated

import typer

from r3l.cli.arguments import AsJson, Envs, Model, Overrides, SomeTier, Tier, configured, listed
from r3l.cli.printing import print_rows, print_shown


def methods(tier: Tier = "nano", as_json: AsJson = False) -> None:
    """List the methods and their settings, with a column for each profile.

    Example: `r3l list methods`
    """
    from r3l.report import options
    from r3l.report.render import to_terminal

    rows = options.methods(tier)
    print_shown({"methods": rows}, as_json, to_terminal(options.methods_table(rows)))


def envs(as_json: AsJson = False) -> None:
    """List the environments, with their task sets in each tier.

    Example: `r3l list envs`
    """
    from r3l.config import EnvConfig, load, names

    rows = [
        {"env": env.env, "label": env.label, "tier": tier, **settings.model_dump()}
        for env in (load("envs", name, EnvConfig) for name in names("envs"))
        for tier, settings in env.tiers.items()
    ]
    print_rows({"envs": rows}, as_json)


def models(as_json: AsJson = False) -> None:
    """List the published models that have a file in configs/models/.

    Example: `r3l list models`
    """
    from r3l.config import ModelConfig, load, names

    rows = [{"model": name, "label": load("models", name, ModelConfig).label} for name in names("models")]
    print_rows({"models": rows}, as_json)


def tiers(as_json: AsJson = False) -> None:
    """List the tiers: model, engine.

    Example: `r3l list tiers`
    """
    from r3l.config import TierConfig, load, names

    found = [load("tiers", name, TierConfig) for name in names("tiers")]
    print_rows({"tiers": [{"tier": t.tier, "model": t.model, "engine": t.engine} for t in found]}, as_json)


def tables(as_json: AsJson = False) -> None:
    """List the tables of configs/tables/.

    Example: `r3l list tables`
    """
    from r3l.workflow import plan

    rows = [{"table": name, "title": table.title} for name, table in plan.tables().items()]
    print_rows({"tables": rows}, as_json)


def figures(as_json: AsJson = False) -> None:
    """List the figures, and the table whose runs each of them shows.

    Example: `r3l list figures`
    """
    from r3l.report.figures import FIGURES

    print_rows({"figures": [{"figure": name, "table": f.table} for name, f in FIGURES.items()]}, as_json)


def options(
    tier: SomeTier = None,
    env: Annotated[str | None, typer.Option(help="Environment: a file of configs/envs/.")] = None,
    method: Annotated[
        str | None, typer.Option(help="A file of configs/methods/, or a variant: r3l@alpha=5,retries=2.")
    ] = None,
    model: Model = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """List every hyperparameter: allowed values, default, meaning and source.

    With an option: every value of that run, and the file that sets it (tier, environment, method, --set).

    Example: `r3l list options`

    Example: `r3l list options --tier nano --env alfworld --method r3l`
    """
    from r3l.config import explained
    from r3l.config.options import environment_options, method_options, run_options

    if tier or env or method or model or overrides:
        values = explained(tier or "nano", env or "alfworld", method or "r3l", 0, model, overrides)
        print_rows({"options": [value._asdict() for value in values]}, as_json)
    else:
        declared = (*method_options(), *environment_options(), *run_options())
        print_rows({"options": [vars(option) for option in declared]}, as_json)


def differences(tier: Tier = "nano", env: Envs = None, as_json: AsJson = False) -> None:
    """List the settings in which the paper and its released code differ, and which of them holds.

    Example: `r3l list differences --tier paper`
    """
    from r3l.report import options as report
    from r3l.report.render import to_terminal
    from r3l.workflow import plan

    config = configured(tier, envs=listed(env, "--env"))
    rows = report.differences(tier, config.envs, config.rows(plan.tables()["table1"]))
    print_shown({"differences": rows}, as_json, to_terminal(report.differences_table(rows)))
