"""`r3l probe`: measures a fixed model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from r3l.cli.arguments import RESULTS, AsJson, Model, Overrides, Seed, Tier, output, resolve_run
from r3l.cli.printing import print_shown


def probe(
    env: Annotated[str, typer.Argument(help="Environment: a file of configs/envs/.")],
    tier: Tier = "nano",
    model: Model = None,
    seed: Seed = 0,
    overrides: Overrides = None,
    tasks: Annotated[int | None, typer.Option(min=2, help="Number of tasks. Default: all.")] = None,
    attempts: Annotated[int, typer.Option(min=2, max=1000, help="Attempts at each task.")] = 8,
    task_set: Annotated[str | None, typer.Option(help="NAME/SPLIT. Default: the validation task set.")] = None,
    out: Annotated[Path | None, output("Default: results/probe/ENV_MODEL.json.")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure a model without training it: how it fails, and whether reflections, restarts and hints help it.

    Example: `r3l probe alfworld`

    Example: `r3l probe webshop --model results/models/candidate --attempts 4 --out candidate.json`

    Example: `r3l probe alfworld --tier smol --model smollm2-135m --tasks 16`
    """
    from r3l.probe.result import Sample, measure_probe, table_of
    from r3l.report.render import to_terminal

    run = resolve_run(tier, env, "r3l", seed, model, overrides)
    path = out or RESULTS / "probe" / f"{env}_{run.model_name()}.json"
    content = measure_probe(run, Sample(task_set, tasks, attempts), path)
    print_shown(content, as_json, to_terminal(table_of(content)))
