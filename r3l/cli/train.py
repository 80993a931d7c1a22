"""Verbs that train: train, preflight, export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from r3l.cli.arguments import (
    AsJson,
    Env,
    Method,
    Model,
    Overrides,
    Profile,
    Seed,
    Tier,
    resolve_run,
    tier_engine,
)
from r3l.cli.printing import pairs, print_report, print_result
from r3l.core.errors import ConfigError, check_known


def train(
    tier: Tier = "nano",
    env: Env = "alfworld",
    method: Method = "r3l",
    profile: Profile = None,
    model: Model = None,
    seed: Seed = 0,
    steps: Annotated[int | None, typer.Option(min=0, help="Short for --set train.steps=N.")] = None,
    overrides: Overrides = None,
    run_dir: Annotated[Path | None, typer.Option(help="Default: results/CELL/seedN.")] = None,
    logger: Annotated[
        list[str] | None, typer.Option(help="Also log to tensorboard, wandb (offline) or trackio.")
    ] = None,
    engine: Annotated[str | None, typer.Option(help="local or trinity. Default: the tier's.")] = None,
    set_aside: Annotated[bool, typer.Option(help="Rename a directory of another configuration.")] = False,
    minutes: Annotated[
        float | None, typer.Option(min=0, help="Stop after so long with exit code 75; the same command goes on.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Train one run; run the same command again to resume.

    Example: `r3l train --method grpo --seed 1 --set train.lr=1e-4`

    Example: `until r3l train --tier smol --minutes 10; do [ $? = 75 ] || break; done`
    """
    from r3l.api.running import place_of, train_run
    from r3l.config import variant
    from r3l.runs.loggers import LOGGERS
    from r3l.runs.run_dir import move_aside

    for name in logger or []:
        check_known("logger", name, LOGGERS)
    row = variant(method).changed(profile=profile, engine=None if engine == tier_engine(tier) else engine)
    run = resolve_run(tier, env, row, seed, model, overrides, steps)
    where, fingerprint = run_dir or place_of(run), run.fingerprint()
    if set_aside:
        move_aside(where, fingerprint)
    result = train_run(run, where, logger or (), minutes)
    line = f"{run.cell} seed {seed}: {result['steps']} steps, {pairs(result['final'])}; in {where}"
    print_result(result, as_json, f"{line}\nnext: r3l evaluate {where}")


def preflight(
    tier: Tier = "smol",
    env: Env = "alfworld",
    method: Method = "r3l",
    model: Model = None,
    seed: Seed = 0,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Explore one step, update nothing: are sampling's log-probs those of training? Exit code 2 where they are not.

    On a GPU it first probes the memory of the largest micro-batch.

    Example: `r3l preflight --tier smol --set train.tasks_per_step=2`
    """
    from r3l.local.preflight import preflight as check

    print_report(check(resolve_run(tier, env, method, seed, model, overrides, None)), as_json)


def export(
    run_dir: Annotated[Path, typer.Argument(help="A run's directory; finished and evaluated for a model.")],
    to: Annotated[
        list[str],
        typer.Option(
            help="Metrics: tensorboard, wandb (offline), trackio. Model: a folder (with a slash), hub:OWNER/NAME. "
            "Repeatable."
        ),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only name a model's files.")] = False,
    as_json: AsJson = False,
) -> None:
    """Copy a run's metrics for another viewer, or its model, with a model card, into a folder or to the hub.

    Example: `r3l export results/nano/alfworld/alfworld-1.5m-hints/r3l/seed0 --to tensorboard`

    Example: `r3l export results/nano/alfworld/alfworld-1.5m-hints/r3l/seed0 --to hub:OWNER/NAME --dry-run`
    """
    from r3l.evaluation import publishing
    from r3l.runs import loggers

    models = [target for target in to if publishing.is_target(target)]
    viewers = [target for target in to if target not in models]
    if dry_run and viewers:
        raise ConfigError("--dry-run is for models (--to FOLDER or hub:OWNER/NAME), not for copies of metrics")
    files = {target: publishing.publish(run_dir, target, dry_run) for target in models}
    copies = [str(place) for place in loggers.export(run_dir, viewers)] if viewers else []
    verb = "would hold" if dry_run else "holds"
    lines = [*copies, *(f"{target} {verb} {', '.join(names)}" for target, names in files.items())]
    print_result({"exported": copies, "models": files}, as_json, "\n".join(lines))
