"""`r3l probe`: measures a model without training it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from r3l.cli.arguments import RESULTS, AsJson, Model, Overrides, Seed, SomeTier, output
from r3l.cli.model_source import DEADLINE, ModelSource
from r3l.cli.printing import print_shown


def probe(
    env: Annotated[str, typer.Argument(help="Environment: a file of configs/envs/.")],
    tier: SomeTier = None,
    model: Model = None,
    server: Annotated[str | None, typer.Option(help="Address of an OpenAI-compatible server.")] = None,
    seed: Seed = 0,
    overrides: Overrides = None,
    tasks: Annotated[
        int | None, typer.Option("--tasks", "-n", min=2, help="Number of tasks. Default: all.")
    ] = None,
    attempts: Annotated[int, typer.Option(min=2, max=1000, help="Attempts at each task.")] = 8,
    task_set: Annotated[
        str | None,
        typer.Option(
            "--task-set", "--split", help="NAME/SPLIT. Default: the validation set; if none, the test set."
        ),
    ] = None,
    batch: Annotated[
        int | None, typer.Option(min=1, help="Attempts at once. Default: 16, or the tier's.")
    ] = None,
    request: Annotated[
        list[str] | None,
        typer.Option(help="KEY=VALUE (JSON) to add to every request, null to leave a field out; repeatable."),
    ] = None,
    deadline: Annotated[
        float, typer.Option(min=1, help="Seconds a server may take for one response.")
    ] = DEADLINE,
    out: Annotated[Path | None, output("Default: results/probe/ENV_MODEL_seedN.json.")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure an untrained model: how it fails, and whether reflections, restarts and hints help.

    Re-run to resume: attempts are kept next to the result. The default tier is smol for a published model (a
    name of configs/models or a hub id), for a server, and for published question sets (gsm8k, math500, ...);
    else it is nano, whose limits suit our base checkpoints alone.

    Example: `r3l probe alfworld`

    Example: `r3l probe webshop --model results/models/candidate --attempts 4 --out candidate.json`

    Example: `r3l probe gsm8k --model qwen2.5-coder-0.5b -n 200 --set reflection_schema=lines`

    Example: `r3l probe gsm8k --server http://localhost:8000 -n 200`
    """
    source = ModelSource(server, model, request=request or [], deadline=deadline, batch=batch)
    source.check()
    from r3l.config import resolve
    from r3l.probe.result import Sample, measure_probe, table_of

    tier = tier or default_tier(env, model, served=bool(server))
    if server:
        from r3l.evaluation.served_model import model_named

        served = source.served_model()
        run = resolve(tier, env, "r3l@engine=server", seed, model_named(served.endpoint.model), overrides)
        run = run.model_copy(update={"served": served.short_hash})
    else:
        served = None
        changes = [] if batch is None else [f"evaluation.batch={batch}"]
        run = resolve(tier, env, "r3l", seed, model, [*changes, *(overrides or ())])
    path = out or RESULTS / "probe" / f"{env}_{run.model_name()}_seed{seed}.json"
    content = measure_probe(run, Sample(task_set, tasks, attempts), path, served)
    print_shown(content, as_json, table_of(content))


def default_tier(env: str, model: str | None, served: bool) -> str:
    """The tier of a probe without --tier, as :func:`probe` says.

    It is nano where the environment has no tier smol. Raises ConfigError for an unknown environment.
    """
    from r3l.config import EnvConfig, find_model, load
    from r3l.config.model import HUB_ID
    from r3l.config.protocol import is_question_set

    if is_question_set(env):
        return "smol"
    hub_id = model is not None and HUB_ID.fullmatch(model) and not Path(model).exists()
    published = model is not None and (hub_id or find_model(model) is not None)
    return "smol" if (published or served) and "smol" in load("envs", env, EnvConfig).tiers else "nano"
