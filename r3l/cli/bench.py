"""`r3l bench`: the speed of a training step and of an environment."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from r3l.cli.arguments import AsJson, Env, Method, Model, Overrides, Seed, Tier, output, resolve_run
from r3l.cli.printing import print_report
from r3l.core.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

A = TypeVar("A", bound=str)


def env(
    env: Annotated[str, typer.Argument(help="Environment: a file of configs/envs/.")] = "alfworld",
    tier: Tier = "nano",
    tasks: Annotated[int | None, typer.Option(min=0, help="Test tasks, spread over the set; 0: all.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Random steps in each task.")] = None,
    seed: Seed = 0,
    out: Annotated[Path | None, output("Also write the report as JSON.")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure the speed and memory of an environment's engine, and check it against the original's own path.

    Example: `r3l bench env scienceworld --out bench.json`
    """
    from r3l.bench.engines import bench_of
    from r3l.config import environment_of
    from r3l.workflow.task_sets import env_settings

    package = environment_of(env)
    package.check_installed()
    bench = bench_of(package.name)
    options = {name: value for name, value in {"tasks": tasks, "steps": steps}.items() if value is not None}
    if unknown := options.keys() - inspect.signature(bench).parameters:
        raise ConfigError(f"--{min(unknown)} has no meaning for r3l bench env {env}; leave it out")
    _print_and_write(bench(env_settings(tier, env).test_task_set, seed=seed, **options), out, as_json)


def train(
    tier: Tier = "nano",
    env: Env = "alfworld",
    method: Method = "grpo",
    model: Model = None,
    seed: Seed = 0,
    overrides: Overrides = None,
    tasks: Annotated[int, typer.Option(min=1, help="Training tasks, one group of responses each.")] = 4,
    group: Annotated[int, typer.Option(min=2, help="Responses in a group.")] = 8,
    length: Annotated[int, typer.Option(min=1, help="Tokens in a response.")] = 64,
    repeats: Annotated[int, typer.Option(min=1, help="Steps of each arm, after one to warm up.")] = 3,
    out: Annotated[Path | None, output("Also write the report as JSON.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare a step (sample, then update) with plain `generate` and padded training, and with TRL's GRPOTrainer.

    On a GPU also with the roofline.

    Example: `r3l bench train --tier smol --tasks 16 --length 128`
    """
    from r3l.bench import train as bench

    run = resolve_run(tier, env, method, seed, model, overrides)
    _print_and_write(bench.bench_train(run, tasks, group, length, repeats), out, as_json)


def step(
    tier: Tier = "nano",
    env: Env = "alfworld",
    method: Method = "grpo",
    model: Model = None,
    seed: Seed = 0,
    overrides: Overrides = None,
    repeats: Annotated[int, typer.Option(min=1, help="Steps of each arm, taken in turn.")] = 5,
    arms: Annotated[
        str, typer.Option(help="Of fused, packed, transformers, reencoded, comma-separated; ratios are to the first.")
    ] = "fused,packed,transformers,reencoded",
    out: Annotated[Path | None, output("Also write the report as JSON, and a figure beside it.")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure a real step, collect and update, by phase, and compare the ways to compute it.

    Example: `r3l bench step --env webshop --method r3l --out step.json`
    """
    from r3l.bench import step as bench

    run = resolve_run(tier, env, method, seed, model, overrides)
    report = bench.bench_step(run, repeats, _arms(arms, bench.ARMS))
    _print_and_write(report, out, as_json, bench.draw)


def _arms(names: str, known: Sequence[A]) -> list[A]:
    arms = {str(arm): arm for arm in known}
    try:
        return [arms[name] for name in dict.fromkeys(names.split(","))]
    except KeyError as error:
        raise ConfigError(f"--arms {names}: {error.args[0]!r} is unknown; known: {', '.join(known)}") from None


def _print_and_write(
    report: dict[str, Any], out: Path | None, as_json: bool, draw: Callable[[dict[str, Any]], Figure] | None = None
) -> None:
    """Print a report and write it to ``out``; print it even where writing fails, since it may have taken an hour."""
    from r3l.files.writing import writable, write_json_atomic

    try:
        if out:
            with writable(out):
                write_json_atomic(out, report)
    finally:
        print_report(report, as_json)
    if out and draw:
        from r3l.report.figures.style import save

        save(draw(report), out.with_suffix(".png"))
