"""`r3l list`: methods, environments, models, tiers, tables and figures; options, and the values of a run."""

from __future__ import annotations

from typing import Annotated

import typer

from r3l.cli.arguments import AsJson, Envs, Model, Overrides, SomeTier, Tier, configured, listed
from r3l.cli.printing import print_rows, print_shown
from r3l.core.errors import ConfigError, check_known


def methods(
    name: Annotated[
        list[str] | None, typer.Argument(help="Methods to show with all settings.", show_default=False)
    ] = None,
    tier: Tier = "nano",
    as_json: AsJson = False,
) -> None:
    """List the methods; with names, list these methods' settings, with a column for each profile.

    Example: `r3l list methods`

    Example: `r3l list methods r3l grpo`
    """
    from r3l.report import options

    rows = options.methods(tier, name or ())
    for one in name or ():
        check_known("method", one, [row["method"] for row in rows])
    if name:
        shown = options.methods_table(rows, name)
        rows = [row for row in rows if row["method"] in name]
    else:
        shown = options.method_families(rows)
    print_shown({"methods": rows}, as_json, shown)


def envs(
    name: Annotated[
        list[str] | None, typer.Argument(help="Environments to show with all settings.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the environments and their tiers; with names, list their task sets and limits in each tier.

    With --json and no names, the settings of all environments are printed.

    Example: `r3l list envs`

    Example: `r3l list envs alfworld`
    """
    from r3l.config import EnvConfig, env_configs, load, names

    for one in name or ():
        check_known("environment", one, names("envs"))
    configs = [load("envs", one, EnvConfig) for one in name] if name else env_configs()
    if not name and not as_json:
        overview = [{"env": c.env, "label": c.label, "tiers": ", ".join(c.tiers)} for c in configs]
        print_rows({"envs": overview}, False)
        print("Task sets, turns and options of one: r3l list envs alfworld")
        return
    rows = []
    for config in configs:
        for tier, settings in config.tiers.items():
            rows.append({"env": config.env, "label": config.label, "tier": tier, **settings.model_dump()})
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
    name: Annotated[
        list[str] | None,
        typer.Argument(
            help="Settings, sections, methods or environments: alpha train r3l.", show_default=False
        ),
    ] = None,
    tier: SomeTier = None,
    env: Annotated[str | None, typer.Option(help="Environment: a file of configs/envs/.")] = None,
    method: Annotated[
        str | None, typer.Option(help="A file of configs/methods/, or a variant: r3l@alpha=5,retries=2.")
    ] = None,
    model: Model = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """List the settings that `--set KEY=VALUE` takes; with names, their values, default, meaning and source.

    With an option such as `--env` it lists every value of that run, and the file that sets it.

    Example: `r3l list options`

    Example: `r3l list options alpha train`

    Example: `r3l list options --tier nano --env alfworld --method r3l`
    """
    from r3l.config import explained
    from r3l.config.options import environment_options, method_options, run_options, settings_named
    from r3l.report.options import options_details, options_overview

    run_given = tier or env or method or model or overrides
    if run_given and name:
        raise ConfigError(
            f"{', '.join(name)}: names cannot be combined with the options of a run; leave them out"
        )
    if run_given:
        values = explained(tier or "nano", env or "alfworld", method or "r3l", 0, model, overrides)
        print_rows({"options": [value._asdict() for value in values]}, as_json)
        return
    declared = (*method_options(name or ()), *environment_options(), *run_options())
    chosen = settings_named(declared, name) if name else declared
    content = {"options": [vars(option) for option in chosen]}
    print_shown(content, as_json, options_details(chosen) if name else options_overview(declared))


def differences(tier: Tier = "nano", env: Envs = None, as_json: AsJson = False) -> None:
    """List the settings in which the paper and its released code differ, and which of them holds.

    Example: `r3l list differences --tier paper`
    """
    from r3l.report import options as report
    from r3l.workflow import plan

    config = configured(tier, envs=listed(env, "--env"))
    rows = report.differences(tier, config.envs, config.rows(plan.tables()["table1"]))
    print_shown({"differences": rows}, as_json, report.differences_table(rows))
