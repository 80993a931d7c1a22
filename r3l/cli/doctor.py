"""`r3l doctor`: checks this machine."""

from __future__ import annotations

import typer

from r3l.cli.arguments import AsJson, Env, Method, Model, Overrides, Tier, refuse_unused, resolve_run
from r3l.cli.printing import print_report, print_shown


def doctor(
    ctx: typer.Context,
    tier: Tier = "nano",
    step: bool = typer.Option(False, "--step", help="Collect one step without updating instead."),
    env: Env = "alfworld",
    method: Method = "r3l",
    model: Model = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Check that this machine can run a tier; exit code 2 if something fails.

    With `--step`: collect one step without updating and check that sampling and training log-probabilities agree. On a
    GPU the memory of the largest micro-batch is tried first.

    Example: `r3l doctor --tier nano`

    Example: `r3l doctor --step --tier smol --env alfworld --set train.tasks_per_step=2`
    """
    if step:
        from r3l.local.preflight import preflight

        print_report(preflight(resolve_run(tier, env, method, 0, model, overrides)), as_json)
        return
    refuse_unused(ctx, "the check of a tier (without --step)", {"tier"})
    from r3l.workflow import doctor as checks

    results = checks.examine(tier)
    content = {"tier": tier, "ok": all(c.ok for c in results), "checks": [vars(c) for c in results]}
    print_shown(content, as_json, checks.render(results))
    if not content["ok"]:
        raise typer.Exit(2)
