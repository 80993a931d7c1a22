"""Verbs that measure the parts against their alternatives: `r3l bench ...`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from r3l.cli.arguments import AsJson, Env, Method, Model, Overrides, Seed, Tier, output, resolve_run
from r3l.cli.printing import print_report
from r3l.core.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

A = TypeVar("A", bound=str)
ReportFile = Annotated[Path | None, output("Also write the report here as JSON.")]
DrawnReport = Annotated[Path | None, output("Also write the report here as JSON; a picture beside it.")]


def bench_env(
    env: Annotated[str, typer.Argument(help="Environment.")] = "alfworld",
    tier: Tier = "nano",
    tasks: Annotated[int | None, typer.Option(min=0, help="Tasks, spread over the test task set; 0: all.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Random steps of each task.")] = None,
    seed: Seed = 0,
    packed: Annotated[Path | None, typer.Option(help="Tasks of a packed file, not of the task set.")] = None,
    envs: Annotated[int | None, typer.Option(min=1, help="Environments that live together.")] = None,
    products: Annotated[int | None, typer.Option(min=1, help="Size of a catalogue to build and serve.")] = None,
    sessions: Annotated[int | None, typer.Option(min=1, help="Customers of that catalogue.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes that serve them.")] = None,
    folder: Annotated[Path | None, typer.Option(help="Where that catalogue is built, or lies already.")] = None,
    out: ReportFile = None,
    as_json: AsJson = False,
) -> None:
    """Speed, memory and identity of an engine, beside the original's own path where that can be run.

    Not every option belongs to every environment; one that does not is an error that lists those that do.

    Example: `r3l bench env scienceworld --envs 8 --out bench.json`
    """
    from r3l.bench.engines import bench_of
    from r3l.config import environment_of
    from r3l.workflow.task_sets import env_settings

    package = environment_of(env)
    package.check_installed()
    bench = bench_of(package.name)
    options = {"tasks": tasks, "steps": steps, "packed": packed, "envs": envs, "products": products}
    options |= {"sessions": sessions, "workers": workers, "folder": folder}
    options = {name: value for name, value in options.items() if value is not None}
    _check_options(env, options, inspect.signature(bench).parameters)
    report = bench(env_settings(tier, env).test_task_set, seed=seed, **options)
    _print_and_write(report, out, as_json)


def _print_and_write(
    report: dict[str, Any], out: Path | None, as_json: bool, draw: Callable[[dict[str, Any]], Figure] | None = None
) -> None:
    """Write a report to ``out``, if given, and print it; what took an hour is shown even where it cannot be kept.

    ``draw``: makes the picture beside it.
    """
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


def bench_rollout(
    tier: Tier = "nano",
    env: Env = "alfworld",
    method: Method = "r3l",
    model: Model = None,
    seed: Seed = 0,
    overrides: Overrides = None,
    tasks: Annotated[int, typer.Option(min=1, help="Training tasks to play.")] = 8,
    repeats: Annotated[int, typer.Option(min=1, help="Repetitions of each arm, taken in turn.")] = 3,
    arms: Annotated[
        str, typer.Option(help="Of cached, uncached, compiled, vllm; ratios are to cached.")
    ] = "cached,uncached",
    out: ReportFile = None,
    as_json: AsJson = False,
) -> None:
    """The same episodes in several ways: with key-value caches that are kept and forked (cached), each dialog encoded
    anew at every turn (uncached), decoded by a compiled step (compiled); and others, drawn by vLLM. Seconds, tokens a
    second, shares of the time by phase, memory.

    Example: `r3l bench rollout --tier smol --arms cached,compiled`
    """
    from r3l.bench import rollout as bench

    run = resolve_run(tier, env, method, seed, model, overrides, None)
    _print_and_write(bench.bench_rollout(run, tasks, repeats, _arms(arms, bench.ARMS)), out, as_json)


def _arms(names: str, known: Sequence[A]) -> list[A]:
    arms = {str(arm): arm for arm in known}
    try:
        return [arms[name] for name in dict.fromkeys(names.split(","))]
    except KeyError as error:
        raise ConfigError(f"--arms {names}: {error.args[0]!r} is unknown; known: {', '.join(known)}") from None


def bench_train(
    tier: Tier = "nano",
    env: Env = "alfworld",
    method: Method = "grpo",
    model: Model = None,
    seed: Seed = 0,
    overrides: Overrides = None,
    tasks: Annotated[int, typer.Option(min=1, help="Training tasks: groups of a step.")] = 4,
    group: Annotated[int, typer.Option(min=2, help="Responses to each.")] = 8,
    length: Annotated[int, typer.Option(min=1, help="Tokens of each response.")] = 64,
    repeats: Annotated[int, typer.Option(min=1, help="Steps of each arm, after one that warms up.")] = 3,
    out: ReportFile = None,
    as_json: AsJson = False,
) -> None:
    """A step (sample, then update) beside plain `generate` with padded training and TRL's GRPOTrainer; on a GPU also
    beside its roofline.

    Example: `r3l bench train --tier smol --tasks 16 --length 128`
    """
    from r3l.bench import train as bench

    run = resolve_run(tier, env, method, seed, model, overrides, None)
    report = bench.bench_train(run, tasks, group, length, repeats)
    _print_and_write(report, out, as_json)


def bench_step(
    tier: Tier = "nano",
    env: Env = "alfworld",
    method: Method = "grpo",
    model: Model = None,
    seed: Seed = 0,
    overrides: Overrides = None,
    repeats: Annotated[int, typer.Option(min=1, help="Steps of each arm, taken in turn.")] = 5,
    arms: Annotated[str, typer.Option(help="Of fused, packed, transformers, reencoded; ratios are to the first.")] = (
        "fused,packed,transformers,reencoded"
    ),
    out: DrawnReport = None,
    as_json: AsJson = False,
) -> None:
    """A real step, collect and update: seconds by phase, the share of this machine's matrix rate, and the same step by
    the packed forward pass, and by transformers' with kept caches and without.

    Example: `r3l bench step --env webshop --method r3l --out step.json`
    """
    from r3l.bench import step as bench

    run = resolve_run(tier, env, method, seed, model, overrides, None)
    report = bench.bench_step(run, repeats, _arms(arms, bench.ARMS))
    _print_and_write(report, out, as_json, bench.draw)


def bench_curves(
    tier: Tier = "nano",
    env: Env = "math",
    method: Method = "grpo",
    model: Model = None,
    seed: Seed = 0,
    overrides: Overrides = None,
    repeats: Annotated[int, typer.Option(min=1, help="Repetitions of each measurement.")] = 5,
    out: DrawnReport = None,
    as_json: AsJson = False,
) -> None:
    """Decoding and training as shares of this machine's limit, over batch and context; what common beginnings save.

    Example: `r3l bench curves --out curves.json`
    """
    from r3l.bench import curves as bench

    run = resolve_run(tier, env, method, seed, model, overrides, None)
    report = bench.bench_curves(run, repeats)
    _print_and_write(report, out, as_json, bench.draw)


def bench_grader(
    workers: Annotated[int, typer.Option(min=1, help="Grading processes.")] = 2,
    count: Annotated[int, typer.Option(min=1, help="Hostile strings.")] = 1000,
    items: Annotated[int, typer.Option(min=2, max=500, help="Items of MATH-500.")] = 500,
    seed: Seed = 0,
    out: ReportFile = None,
    as_json: AsJson = False,
) -> None:
    """Speed of the grader of mathematics over MATH-500, and its worst case over hostile answers.

    Example: `r3l bench grader --out bench_grader.json`
    """
    from r3l.bench import grader
    from r3l.config import environment_of

    environment_of("math").check_installed()
    report = grader.run(workers, count, items, seed)
    _print_and_write(report, out, as_json)


def _check_options(env: str, options: Mapping[str, Any], parameters: Mapping[str, inspect.Parameter]) -> None:
    """Raises ConfigError for an option that is not among the keywords of an environment's function."""
    known = [name for name, parameter in parameters.items() if parameter.kind is parameter.KEYWORD_ONLY]
    for name in options:
        if name not in known:
            raise ConfigError(
                f"r3l bench env {env} has no option --{name}; it has --{', --'.join(known)}. Remove --{name}"
            )
