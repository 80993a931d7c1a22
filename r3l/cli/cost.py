"""The verb that says what runs would cost: `r3l cost`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from r3l.cli.arguments import (
    AsJson,
    Envs,
    Overrides,
    Seeds,
    Tier,
    configured,
    listed,
    numbers,
)
from r3l.cli.printing import print_shown
from r3l.core.errors import check_known


def cost(
    table: Annotated[str, typer.Option(help="The table whose runs are counted: a file of configs/tables/.")] = "table1",
    tier: Tier = "paper",
    env: Envs = None,
    model: Annotated[str | None, typer.Option(help="Only this model. Default: those of the table.")] = None,
    method: Annotated[str | None, typer.Option(help="Only these methods, by commas.")] = None,
    seeds: Seeds = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """What a table's runs would cost, in GPU-hours from the published seconds a step; runs nothing.

    Example: `r3l cost --table table1`

    Example: `r3l cost --model qwen2.5-1.5b --env alfworld --method grpo,r3l --seeds 0 --set train.steps=400`
    """
    from r3l.report import gpu_hours
    from r3l.report.render import to_terminal
    from r3l.workflow import plan

    known = plan.tables()
    check_known("table", table, known)
    options = {
        "envs": listed(env, "--env"),
        "model": model,
        "methods": listed(method, "--method"),
        "seeds": numbers(seeds),
        "set": overrides,
    }
    config = configured(tier=tier, **options)
    costs = gpu_hours.costs(plan.runs(config, known[table]).values())
    if not costs:
        about = "models as they are" if known[table].kind == "benchmarks" else "environments and models of other tiers"
        why = f"Nothing to train at tier {tier}: table {table} is about {about}."
        print_shown({"rows": [], "summary": why}, as_json, why)
        return
    count = len(config.seeds)
    content = {"rows": [asdict(cost) for cost in dict.fromkeys(costs)], "summary": gpu_hours.summary(costs, count)}
    print_shown(content, as_json, to_terminal(gpu_hours.cost_table(costs, count, known[table].title)))
