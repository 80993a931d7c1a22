"""Verbs that list what there is: methods, options, envs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from r3l.cli.arguments import AsJson, Tier
from r3l.cli.printing import print_rows, print_shown

if TYPE_CHECKING:
    pass


def methods(tier: Tier = "nano", as_json: AsJson = False) -> None:
    """The table of methods and options, made from the configs: a column a profile.

    Example: `r3l methods --json`
    """
    from r3l.report import options
    from r3l.report.table.terminal import to_terminal

    rows = options.methods(tier)
    print_shown({"methods": rows}, as_json, to_terminal(options.methods_table(rows)))


def list_options(as_json: AsJson = False) -> None:
    """Every hyperparameter: allowed values, default, meaning, source, and the methods or environments that have it.

    Example: `r3l options`
    """
    from r3l.config.options import environment_options, method_options, run_options

    print_rows(
        {"options": [vars(option) for option in (*method_options(), *environment_options(), *run_options())]}, as_json
    )


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
