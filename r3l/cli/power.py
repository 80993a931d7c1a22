"""The verb that plans seeds: `r3l power`."""

from __future__ import annotations

from typing import Annotated

import typer

from r3l.cli.arguments import AsJson, StoredRuns, Tier, environments_named
from r3l.cli.compare import opponents_of
from r3l.cli.printing import print_shown
from r3l.core.errors import ConfigError


def power(
    method: Annotated[str, typer.Argument(help="A method or variant that has runs.")],
    against: Annotated[str, typer.Option(help="Methods, by commas; or all: those of Table 1.")] = "grpo",
    tier: Tier = "nano",
    env: Annotated[str | None, typer.Option(help="Environments, by commas. Default: all with runs.")] = None,
    group: Annotated[str, typer.Option(help="Of the test tasks: all, easy, hard.")] = "all",
    difference: Annotated[float | None, typer.Option(help="To be shown. Default: 0.05.")] = None,
    power: Annotated[float, typer.Option(help="Power of the test.")] = 0.8,
    comparisons: Annotated[int, typer.Option(min=1, help="Of the family that Holm will correct.")] = 1,
    results: StoredRuns = None,
    as_json: AsJson = False,
) -> None:
    """How many seeds, and core-hours, a difference between two methods takes, by the spread of the runs there are.

    And the minimum detectable effects of 3, 5, 10 and 20 seeds, and what the stopping rule says.

    Example: `r3l power r3l --against grpo --difference 0.05`
    """
    from r3l.evaluation.power import ALPHA, Goal
    from r3l.report import power as planning
    from r3l.report import records
    from r3l.report.compare import compare
    from r3l.report.render import to_terminal
    from r3l.runs.places import runs_of
    from r3l.runs.stored_archive import stored_runs

    _check_share("--difference", difference, 0.001, 1)
    _check_share("--power", power, 0.1, 0.999)
    envs = environments_named(env)
    wanted, goal = 0.05 if difference is None else difference, Goal(ALPHA, power, comparisons)
    opponents = opponents_of(method, against, tier)
    runs = records.load(runs_of(results or stored_runs(), [method, *opponents], tier, envs))
    rows = planning.power_rows(compare(runs, method, opponents, group), runs, wanted, goal)
    content = {"rows": [row.flat() for row in rows]}
    print_shown(content, as_json, to_terminal(planning.power_table(rows, wanted, goal)))


def _check_share(option: str, value: float | None, low: float, high: float) -> None:
    """Raises ConfigError for one out of range, or no number."""
    if value is not None and not low <= value <= high:
        raise ConfigError(f"{option} is {value:g}; it must be a number from {low:g} to {high:g}")
