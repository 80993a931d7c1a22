"""`r3l doctor`: checks this machine."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from r3l.cli.arguments import AsJson, Env, Method, Model, Overrides, SomeTier, refuse_unused, resolve_run
from r3l.cli.printing import print_report, print_result, print_shown
from r3l.core.errors import DataError

if TYPE_CHECKING:
    from r3l.config import Run

OF_RUN = {"tier", "env", "method", "model", "overrides"}


def doctor(
    ctx: typer.Context,
    tier: SomeTier = None,
    step: bool = typer.Option(False, "--step", help="Collect one step without updating instead."),
    env: Env = "alfworld",
    method: Method = "r3l",
    model: Model = None,
    memory: int | None = typer.Option(
        None, min=1, help="GiB of the GPU that --model is planned for. Default: this machine's."
    ),
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Check that this machine can run a tier (default: nano), or with `--tier` and `--env` one of its runs; what fails
    comes first. Exit code 2 if something fails.

    With `--model`, where this machine trains: the memory plan of a run (default: tier smol) by formula, and the
    settings that make it fit; exit code 2 if it does not fit without them.

    With `--step`: collect one step without updating and check that sampling and training log-probabilities agree. On a
    GPU the memory of the largest micro-batch is tried first.

    Example: `r3l doctor --tier paper --env webshop --model qwen2.5-1.5b --method r3l`

    Example: `r3l doctor --model qwen2.5-coder-1.5b --env gsm8k --memory 24`

    Example: `r3l doctor --step --tier smol --env alfworld --set train.tasks_per_step=2`
    """
    from r3l.config import TierConfig, load

    if step:
        from r3l.local.preflight import preflight

        refuse_unused(ctx, "--step", OF_RUN | {"step"})
        print_report(preflight(resolve_run(tier or "nano", env, method, 0, model, overrides)), as_json)
    elif tier and (load("tiers", tier, TierConfig).engine == "trinity" or (not model and _given(ctx, "env"))):
        refuse_unused(ctx, "the check of a tier or run (without --step)", OF_RUN)
        one = any(_given(ctx, name) for name in OF_RUN - {"tier"})
        _check(tier, as_json, resolve_run(tier, env, method, 0, model, overrides) if one else None)
    elif model:
        from r3l.config import locate
        from r3l.local import memory as plan
        from r3l.local.checkpoint import check_template

        run = resolve_run(tier or "smol", env, method, 0, model, overrides)
        if Path(locate(run.model)).is_dir():
            with suppress(DataError):  # a plan needs neither weights nor tasks
                check_template(run, run.model)
        found = plan.report(run, plan.gpu_memory() if memory is None else memory * 2**30)
        print_result(found, as_json, plan.rendered(found))
        if found["fits"] is False:
            raise typer.Exit(2)
    else:
        refuse_unused(ctx, "the check of a tier (without --step or --model)", {"tier"})
        _check(tier or "nano", as_json)


def _given(ctx: typer.Context, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _check(tier: str, as_json: bool, run: Run | None = None) -> None:
    from r3l.workflow import doctor as checks

    results = checks.examine(tier, run)
    content = {"tier": tier, "ok": all(c.ok for c in results), "checks": [vars(c) for c in results]}
    print_shown(content, as_json, checks.render(results))
    if not content["ok"]:
        raise typer.Exit(2)
