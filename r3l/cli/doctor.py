"""`r3l doctor`: checks this machine."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from r3l.cli.arguments import AsJson, Env, Method, Model, Overrides, Tier
from r3l.cli.printing import print_paragraph, print_report, print_result, print_shown
from r3l.core.errors import DataError


def doctor(
    tier: Tier = "nano",
    env: Annotated[
        str | None, typer.Option(help="Check one run: in this environment (default: alfworld),")
    ] = None,
    method: Annotated[str | None, typer.Option(help="with this method (default: r3l),")] = None,
    model: Annotated[str | None, typer.Option(help="and this model (default: the tier's).")] = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Check that this machine can run a tier, or one of its runs. Exit code 2 if a check fails.

    Example: `r3l doctor`

    Example: `r3l doctor --tier paper --env webshop --model qwen2.5-1.5b --method r3l`
    """
    from r3l.config import resolve
    from r3l.report.table import Cell, Column, table
    from r3l.workflow import doctor as checks

    # Without an option of a run only the tier is checked.
    run = None
    if env or method or model or overrides:
        run = resolve(tier, env or "alfworld", method or "r3l", 0, model, overrides)
    results = checks.examine(tier, run)
    content = {
        "tier": tier,
        "ok": all(check.ok for check in results),
        "checks": [vars(check) for check in results],
    }
    columns = [
        Column("check", lambda check: check.name),
        Column("", lambda check: Cell("ok" if check.ok else "FAIL", bold=not check.ok)),
        Column("found", lambda check: check.detail if check.ok else "below"),
    ]
    print_shown(content, as_json, table("r3l doctor", columns, results))

    # A failed check has its own lines below the table, where a command to copy stays in one piece.
    failed = [check for check in results if not check.ok]
    for check in [] if as_json else failed:
        print_paragraph(f"FAIL {check.name}: {check.detail}", indent=5)
        print_paragraph(f"     fix: {check.fix}", indent=10)
    if not content["ok"]:
        raise typer.Exit(2)


def step(
    tier: Tier = "nano",
    env: Env = "alfworld",
    method: Method = "r3l",
    model: Model = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Collect one step without updating, and check that log-probabilities of sampling and training agree.

    On a GPU the memory of the largest micro-batch is tried first. Exit code 2 if they differ.

    Example: `r3l doctor step --tier smol --env alfworld --set train.tasks_per_step=2`
    """
    from r3l.config import resolve
    from r3l.local.preflight import preflight

    print_report(preflight(resolve(tier, env, method, 0, model, overrides)), as_json)


def memory(
    model: Annotated[str, typer.Option(help="A file of configs/models/.")],
    tier: Tier = "smol",
    env: Env = "alfworld",
    method: Method = "r3l",
    gib: Annotated[int | None, typer.Option(min=1, help="GiB of the GPU. Default: this machine's.")] = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Plan the GPU memory of training a model on this machine, by formula, with settings that make it fit.

    Exit code 2 if it does not fit without them.

    Example: `r3l doctor memory --model qwen2.5-coder-1.5b --env gsm8k --gib 24`
    """
    from r3l.config import locate, resolve
    from r3l.local import memory as plan
    from r3l.local.checkpoint import check_template

    run = resolve(tier, env, method, 0, model, overrides)
    if Path(locate(run.model)).is_dir():
        with suppress(DataError):  # a plan needs neither weights nor tasks
            check_template(run, run.model)
    found = plan.report(run, plan.gpu_memory() if gib is None else gib * 2**30)
    print_result(found, as_json, plan.rendered(found))
    if found["fits"] is False:
        raise typer.Exit(2)
