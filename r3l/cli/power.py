"""The verb that plans seeds: `r3l power`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from r3l.cli.arguments import AsJson, StoredRuns, Tier, environments_named, output
from r3l.cli.compare import opponents_of
from r3l.cli.printing import print_shown
from r3l.core.errors import ConfigError


def power(
    method: Annotated[str, typer.Argument(help="A method or variant that has runs.")],
    against: Annotated[str, typer.Option(help="Methods, by commas; or all: those of Table 1.")] = "grpo",
    tier: Tier = "nano",
    env: Annotated[str | None, typer.Option(help="Environments, by commas. Default: all with runs.")] = None,
    group: Annotated[str, typer.Option(help="Of the test tasks: all, easy, hard.")] = "all",
    difference: Annotated[
        float | None, typer.Option(help="To be shown. Default: 0.05; of the stopping rule 0.04.")
    ] = None,
    power: Annotated[float, typer.Option(help="How surely it is to be shown.")] = 0.8,
    comparisons: Annotated[int, typer.Option(min=1, help="Of the family that Holm will correct.")] = 1,
    stopping_rule: Annotated[
        bool, typer.Option("--stopping-rule", help="Instead: is another block of five seeds due?")
    ] = False,
    results: StoredRuns = None,
    out: Annotated[Path | None, output("Also draw it: a .png or .pdf file.")] = None,
    as_json: AsJson = False,
) -> None:
    """How many seeds, and core-hours, a difference between two methods takes, by the spread of the runs there are.

    And what 3, 5, 10 and 20 seeds could show.

    Example: `r3l power r3l --against grpo --difference 0.05 --out power.png`

    Example: `r3l power r3l --against all --stopping-rule`
    """
    from r3l.evaluation.power import ALPHA, Goal, StoppingRule
    from r3l.report import records
    from r3l.report.comparison import power as planning
    from r3l.report.comparison.compare import compare
    from r3l.report.figures.power import draw_power
    from r3l.report.render import to_terminal
    from r3l.runs.places import runs_of
    from r3l.runs.stored_archive import stored_runs

    _check_share("--difference", difference, 0.001, 1)
    _check_share("--power", power, 0.1, 0.999)
    envs = environments_named(env)
    rule = StoppingRule() if difference is None else StoppingRule(difference=difference)
    goal = Goal(rule.alpha if stopping_rule else ALPHA, power, comparisons)
    wanted = rule.difference if stopping_rule else 0.05 if difference is None else difference
    opponents = opponents_of(method, against, tier)
    runs = records.load(runs_of(results or stored_runs(), [method, *opponents], tier, envs))
    rows = planning.power_rows(compare(runs, method, opponents, group), runs, wanted, goal)
    if out:
        draw_power(rows, runs, goal, out)
    if stopping_rule:
        due = planning.due_rows(rows, rule, goal)
        print_shown({"rows": due}, as_json, to_terminal(planning.due_table(due, rule, goal)))
    else:
        print_shown({"rows": rows}, as_json, to_terminal(planning.power_table(rows, goal)))


def _check_share(option: str, value: float | None, low: float, high: float) -> None:
    """Raises ConfigError for one out of range, or no number."""
    if value is not None and not low <= value <= high:
        raise ConfigError(f"{option} is {value:g}; it must be a number from {low:g} to {high:g}")
