"""`r3l list`: what there is, and which values a run has."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from r3l.cli.arguments import (
    AsJson,
    Envs,
    Model,
    Overrides,
    SomeTier,
    configured,
    listed,
    refuse_unused,
)
from r3l.cli.printing import print_rows, print_shown


class What(StrEnum):
    """What can be listed."""

    METHODS = "methods"
    ENVS = "envs"
    MODELS = "models"
    TIERS = "tiers"
    TABLES = "tables"
    FIGURES = "figures"
    OPTIONS = "options"
    DIFFERENCES = "differences"


USED = {
    What.METHODS: {"tier"},
    What.DIFFERENCES: {"tier", "env"},
    What.OPTIONS: {"tier", "env", "method", "model", "overrides"},
}


def list_(
    ctx: typer.Context,
    what: Annotated[What, typer.Argument(help="What to list.")],
    tier: SomeTier = None,
    env: Envs = None,
    method: Annotated[
        str | None, typer.Option(help="A file of configs/methods/, or a variant: r3l@alpha=5,retries=2.")
    ] = None,
    model: Model = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """List methods (their settings, a column a profile), envs, models, tiers, tables, figures, options or differences.

    `options`: every hyperparameter, its allowed values, default, meaning and source. With `--tier`, `--env` or
    `--method`: every value of that run and where it comes from (tier, environment, method, --set). `differences`: the
    settings in which the paper and its released code differ, and which of them holds.

    Example: `r3l list methods`

    Example: `r3l list options --tier nano --env alfworld --method r3l`

    Example: `r3l list differences --tier paper`
    """
    from r3l.config import explained
    from r3l.report import options
    from r3l.report.render import to_terminal

    refuse_unused(ctx, f"list {what}", USED.get(what, set()))
    if what is What.METHODS:
        rows = options.methods(tier or "nano")
        print_shown({"methods": rows}, as_json, to_terminal(options.methods_table(rows)))
    elif what is What.OPTIONS and (tier or env or method or model or overrides):
        values = explained(tier or "nano", env or "alfworld", method or "r3l", 0, model, overrides)
        print_rows({"options": [value._asdict() for value in values]}, as_json)
    elif what is What.OPTIONS:
        from r3l.config.options import environment_options, method_options, run_options

        declared = (*method_options(), *environment_options(), *run_options())
        print_rows({"options": [vars(option) for option in declared]}, as_json)
    elif what is What.DIFFERENCES:
        _print_differences(tier or "nano", env, as_json)
    else:
        print_rows({what.value: _rows(what)}, as_json)


def _rows(what: What) -> list[dict[str, object]]:
    from r3l.config import EnvConfig, ModelConfig, TierConfig, load, names
    from r3l.report.figures import FIGURES
    from r3l.workflow import plan

    if what is What.ENVS:
        return [
            {"env": e.env, "label": e.label, "tier": tier, **settings.model_dump()}
            for e in (load("envs", name, EnvConfig) for name in names("envs"))
            for tier, settings in e.tiers.items()
        ]
    if what is What.MODELS:
        models = [load("models", name, ModelConfig) for name in names("models")]
        return [{"model": model.model, "label": model.label} for model in models]
    if what is What.TIERS:
        tiers = [load("tiers", name, TierConfig) for name in names("tiers")]
        return [{"tier": tier.tier, "model": tier.model, "engine": tier.engine} for tier in tiers]
    if what is What.FIGURES:
        return [{"figure": name, "table": figure.table} for name, figure in FIGURES.items()]
    return [{"table": name, "title": table.title} for name, table in plan.tables().items()]


def _print_differences(tier: str, env: str | None, as_json: bool) -> None:
    """For the methods of Table 1."""
    from r3l.report import options
    from r3l.report.render import to_terminal
    from r3l.workflow import plan

    config = configured(tier, envs=listed(env, "--env"))
    rows = options.differences(tier, config.envs, config.rows(plan.tables()["table1"]))
    print_shown({"differences": rows}, as_json, to_terminal(options.differences_table(rows)))
