"""Verbs of the paper tier: the configuration that Trinity-RFT reads, and what runs would cost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from r3l.cli.common import (
    RESULTS,
    AsJson,
    Env,
    Envs,
    Method,
    Model,
    Overrides,
    Seed,
    Seeds,
    Tier,
    check_known,
    configured,
    listed,
    numbers,
    print_shown,
    resolve_run,
)
from r3l.core.errors import ConfigError

Nodes = Annotated[int | None, typer.Option(min=1, help="Default: configs/models.")]


def trinity_config(
    env: Env = "alfworld",
    model: Model = None,
    method: Method = "r3l",
    seed: Seed = 0,
    tier: Tier = "paper",
    overrides: Overrides = None,
    folder: Annotated[Path | None, typer.Option(help="For checkpoints and logs. Default: the run's directory.")] = None,
    tasks: Annotated[Path | None, typer.Option(help="Of the tasksets. Default: FOLDER/tasks.")] = None,
    nodes: Nodes = None,
    gpus_per_node: Nodes = None,
    write_tasks: Annotated[
        bool, typer.Option(help="Also write the tasksets there; needs the task_sets' data.")
    ] = False,
    tinker: Annotated[str, typer.Option(help="Address of a Tinker server, in place of verl and vLLM.")] = "",
    out: Annotated[Path | None, typer.Option(help="Write it here. Default: print it.")] = None,
) -> None:
    """The Trinity-RFT 0.6.0 configuration of a run, as YAML.

    Example: `r3l trinity-config --env alfworld --model qwen2.5-1.5b --method r3l --seed 0 --out r3l.yaml`

    Example: `r3l trinity-config --out r3l.yaml --write-tasks && trinity run --config r3l.yaml`
    """
    from r3l.core.files import writable, write_text_atomic
    from r3l.trinity.config import Place, as_yaml, trinity_config

    run = resolve_run(tier, env, method, seed, model, overrides, None)
    where = folder or RESULTS / run.cell / f"seed{seed}" / "trinity"
    place = Place(
        folder=where,
        tasks=tasks or where / "tasks",
        backend="tinker" if tinker else "verl",
        tinker_url=tinker,
        nodes=nodes,
        gpus_per_node=gpus_per_node,
    )
    text = as_yaml(run, trinity_config(run, place))
    if write_tasks:
        from r3l.trinity.tasksets import write_tasksets

        write_tasksets(run, place.tasks)
    if out is None:
        print(text, end="")
        return
    with writable(out):
        write_text_atomic(out, text)
    print(out)


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
    from r3l.report import expected_cost
    from r3l.report.table.terminal import to_terminal
    from r3l.workflow import plan

    known = plan.tables()
    check_known("table", table, known)
    given = {"envs": listed(env), "model": model, "methods": listed(method), "seeds": numbers(seeds), "set": overrides}
    config = configured(tier=tier, **given)
    found = expected_cost.costs(plan.runs(config, known[table]).values())
    if not found:
        raise ConfigError(f"table {table!r} has no runs at tier {tier!r}; name another one, such as table1 or table2")
    count = len(config.seeds)
    content = {"rows": expected_cost.cost_rows(found, count), "summary": expected_cost.summary(found, count)}
    print_shown(content, as_json, to_terminal(expected_cost.cost_table(found, count, known[table].title)))
