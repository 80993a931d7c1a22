"""The verb that says what of a grid is done: `r3l status`."""

from __future__ import annotations

from typing import Annotated

import typer

from r3l.cli.arguments import RESULTS, AsJson, Envs, Results, Seeds, configured, listed, numbers
from r3l.cli.printing import print_shown
from r3l.core.errors import check_known


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
    from r3l.report import gpu_hours
    from r3l.report.render import to_terminal
    from r3l.report.status import status_table
    from r3l.runs import stored_archive
    from r3l.runs.places import find_runs
    from r3l.workflow import plan
    from r3l.workflow import status as surveys

    known = plan.tables()
    check_known("table", table, known)
    config = configured(tier=tier, grid=grid, envs=listed(env, "--env"), seeds=numbers(seeds))
    runs = plan.runs(config, known[table])
    stored = find_runs(stored_archive.folder(), may_be_none=True)
    statuses = surveys.survey(runs, results, [path.parent for path in stored])
    content = {"table": table, "runs": [status.as_json() for status in statuses]}
    print_shown(content, as_json, to_terminal(status_table(statuses)))
    if load("tiers", config.tier, TierConfig).engine == "trinity" and not as_json:
        left = [status.run for status in statuses if status.state != "done"]
        print(f"Left: {gpu_hours.summary(gpu_hours.costs(left), len(config.seeds))}")
