"""The verb that prints what Trinity-RFT reads: `r3l trinity-config`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from r3l.cli.arguments import (
    RESULTS,
    Env,
    Method,
    Model,
    Overrides,
    Profile,
    Seed,
    Tier,
    output,
    resolve_run,
)

Nodes = Annotated[int | None, typer.Option(min=1, help="Default: configs/models.")]


def trinity_config(
    env: Env = "alfworld",
    model: Model = None,
    method: Method = "r3l",
    profile: Profile = None,
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
    out: Annotated[Path | None, output("Write it here. Default: print it.")] = None,
) -> None:
    """The Trinity-RFT 0.6.0 configuration of a run, as YAML.

    Example: `r3l trinity-config --env alfworld --model qwen2.5-1.5b --method r3l --seed 0 --out r3l.yaml`

    Example: `r3l trinity-config --profile released_code --out r3l.yaml`

    Example: `r3l trinity-config --out r3l.yaml --write-tasks && trinity run --config r3l.yaml`
    """
    from r3l.config import variant
    from r3l.files.writing import writable, write_text_atomic
    from r3l.trinity.config import Place, as_yaml, trinity_config, write_tasksets

    run = resolve_run(tier, env, variant(method).changed(profile=profile), seed, model, overrides, None)
    where = folder or RESULTS / run.directory / "trinity"
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
        write_tasksets(run, place.tasks)
    if out is None:
        print(text, end="")
        return
    with writable(out):
        write_text_atomic(out, text)
    print(out)
