"""`r3l bench`: the speed of a training step on this machine, and of other libraries here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from r3l.cli.arguments import AsJson, Env, Method, Model, Overrides, Seed, Tier, output
from r3l.cli.printing import print_report

ReportFile = Annotated[Path | None, output("Also write the report here as JSON.")]


def step(
    tier: Tier = "nano",
    env: Env = "alfworld",
    method: Method = "grpo",
    model: Model = None,
    seed: Seed = 0,
    overrides: Overrides = None,
    repeats: Annotated[int, typer.Option(min=1, help="Steps of each implementation, in turn.")] = 5,
    out: ReportFile = None,
    as_json: AsJson = False,
) -> None:
    """Time the phases of a real step (rollouts, update), and the same with the forward pass of transformers.

    Example: `r3l bench step --env webshop --method r3l --out step.json`
    """
    from r3l.bench import step as bench
    from r3l.config import resolve

    run = resolve(tier, env, method, seed, model, overrides)
    _print_and_write(bench.bench_step(run, repeats), out, as_json)


def train(
    tier: Tier = "nano",
    env: Env = "alfworld",
    method: Method = "grpo",
    model: Model = None,
    seed: Seed = 0,
    overrides: Overrides = None,
    tasks: Annotated[int, typer.Option(min=1, help="Tasks of a step, each with a group of responses.")] = 4,
    group: Annotated[int, typer.Option(min=2, help="Responses to each task.")] = 8,
    length: Annotated[int, typer.Option(min=1, help="Tokens of each response.")] = 64,
    repeats: Annotated[
        int, typer.Option(min=1, help="Timed steps of each implementation, after a warm-up step.")
    ] = 3,
    out: ReportFile = None,
    as_json: AsJson = False,
) -> None:
    """Time a step (sample, then update) here, with plain `generate` and padded rows, and by TRL.

    Stopped early, it reports what has been measured.

    Example: `r3l bench train --tier smol --tasks 16 --length 128`
    """
    from r3l.bench import train as bench
    from r3l.config import resolve

    run = resolve(tier, env, method, seed, model, overrides)
    report, stopped = bench.bench_train(run, tasks, group, length, repeats)
    _print_and_write(report, out, as_json)
    if stopped:
        raise stopped


def _print_and_write(report: dict[str, Any], out: Path | None, as_json: bool) -> None:
    """Write a report to ``out``, if given, and print it in any case: it may have taken an hour."""
    from r3l.files.writing import writable, write_json_atomic

    try:
        if out:
            with writable(out):
                write_json_atomic(out, report)
    finally:
        print_report(report, as_json)
