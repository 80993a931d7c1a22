"""Verbs that make results: train, evaluate."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from r3l.cli.common import (
    RESULTS,
    AsJson,
    Env,
    Method,
    Model,
    Overrides,
    Seed,
    Tier,
    console,
    pairs,
    print_report,
    print_result,
    resolve_run,
    tier_engine,
)
from r3l.core.errors import ConfigError, DataError

if TYPE_CHECKING:
    from r3l.config import Run


def train(
    tier: Tier = "nano",
    env: Env = "alfworld",
    method: Method = "r3l",
    profile: Annotated[str | None, typer.Option(help="paper, released_code or fair.")] = None,
    model: Model = None,
    seed: Seed = 0,
    steps: Annotated[int | None, typer.Option(min=0, help="Short for --set train.steps=N.")] = None,
    overrides: Overrides = None,
    run_dir: Annotated[Path | None, typer.Option(help="Default: results/<cell>/seed<seed>.")] = None,
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
    from r3l.config import variant
    from r3l.runs.run_dir import move_aside

    row = variant(method).changed(profile=profile, engine=None if engine == tier_engine(tier) else engine)
    run = resolve_run(tier, env, row, seed, model, overrides, steps)
    where = run_dir or RESULTS / run.cell / f"seed{seed}"
    if set_aside:
        move_aside(where, run.fingerprint())
    result = _train(run, where, logger or (), minutes)
    line = f"{run.cell} seed {seed}: {result['steps']} steps, {pairs(result['final'])}; in {where}"
    print_result(result, as_json, line)


def _train(run: Run, where: Path, loggers: Sequence[str], minutes: float | None) -> dict[str, Any]:
    """Train by the run's engine; where there is nothing to train, the local one keeps the start model."""
    from r3l.config import trains
    from r3l.runs.gpu_locks import reserved_gpus
    from r3l.workflow import resources

    engine = importlib.import_module(f"r3l.{run.engine if trains(run) else 'local'}.engine")
    job = resources.requested_resources(resources.load(), "train", run)
    elsewhere = job.nodes > 1 or (engine.__name__ == "r3l.trinity.engine" and "RAY_ADDRESS" in os.environ)
    with reserved_gpus(0 if elsewhere else job.gpu):
        result: dict[str, Any] = engine.train(run, where, loggers, minutes)
    return result


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

    On a GPU it first rehearses the largest micro-batch, so that memory runs out now or never.

    Example: `r3l preflight --tier smol --set train.tasks_per_step=2`
    """
    from r3l.local.preflight import preflight as check

    print_report(check(resolve_run(tier, env, method, seed, model, overrides, None)), as_json)


def export(
    run_dir: Annotated[Path, typer.Argument(help="A run's directory, finished or not.")],
    to: Annotated[list[str], typer.Option(help="tensorboard, wandb (offline) or trackio; repeatable.")],
    as_json: AsJson = False,
) -> None:
    """Copy a run's metrics for another viewer, into RUN_DIR/NAME; metrics.jsonl stays the truth.

    Example: `r3l export results/nano/alfworld/nano/r3l/seed0 --to tensorboard`
    """
    from r3l.runs import loggers

    loggers.export(run_dir, to)
    made = [str(run_dir / name) for name in to]
    print_result({"exported": made}, as_json, "\n".join(made))


def evaluate(
    run_dir: Annotated[Path | None, typer.Argument(help="Directory of a finished training run.")] = None,
    task_set: Annotated[str | None, typer.Option(help="Another task set than the run's test task set.")] = None,
    env: Annotated[str, typer.Option(help="With --set: whose sets (math).")] = "math",
    sets: Annotated[str | None, typer.Option("--set", help="Question sets, by commas: gsm8k,math500.")] = None,
    model: Annotated[
        str | None, typer.Option(help="Stored model, folder, hub id; with --server its name there.")
    ] = None,
    server: Annotated[str | None, typer.Option(help="Address of an OpenAI-compatible server.")] = None,
    protocol: Annotated[str, typer.Option(help="standard (one attempt) or r3l_released (three, oracle).")] = "standard",
    prompt: Annotated[str, typer.Option(help="How standard asks for the answer: boxed or tags.")] = "boxed",
    oracle: Annotated[str, typer.Option(help="Who judges in r3l_released: ours or released.")] = "ours",
    data: Annotated[Path | None, typer.Option(help="Folder of problem sets. Default: $R3L_MATH.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N items of each set.")] = None,
    seed: Seed = 0,
    temperature: Annotated[float | None, typer.Option(min=0, help="Default: the protocol's.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Of one reply. Default: the protocol's.")] = None,
    batch: Annotated[int, typer.Option(min=1, help="Replies at once: requests in flight, or rows of a batch.")] = 16,
    out: Annotated[Path | None, typer.Option(help="Default: results/evaluations/ENV/MODEL/SETTINGS/seedN.")] = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate a run on its test task set (last checkpoint, no reflection, no guidance), or a model on question sets.

    The same command goes on where it was stopped.

    Example: `r3l evaluate results/nano/alfworld/nano/r3l/seed0`

    Example: `r3l evaluate --set gsm8k,math500 --server http://localhost:8000 --model Qwen/Qwen2.5-1.5B-Instruct`
    """
    if run_dir is not None and sets is None:
        _evaluate_run(run_dir, task_set, as_json)
        return
    if run_dir is not None or sets is None or (model is None and server is None):
        raise ConfigError(
            "give either the directory of a run (r3l evaluate RUN_DIR), or question sets and what answers them "
            "(r3l evaluate --set gsm8k --model PATH, or --set gsm8k --server URL --model NAME)"
        )
    from r3l.config import environment_of
    from r3l.envs.base.package import BenchmarkOptions
    from r3l.evaluation import benchmarks
    from r3l.report.benchmarks import scores_table
    from r3l.report.table.terminal import to_terminal

    options = BenchmarkOptions(protocol, prompt, oracle, data)
    with environment_of(env).benchmark(options) as benchmark, contextlib.ExitStack() as stack:
        names = sets.split(",")
        for name in names:
            benchmark.items(name)  # a wrong name is an error now, not after the model has loaded
        warmth = benchmark.temperature if temperature is None else temperature
        length = max_tokens or benchmark.max_tokens
        if server:
            from r3l.evaluation.servers import Server

            answering: benchmarks.Model = stack.enter_context(Server(server, model, warmth, length, batch))
        else:
            from r3l.evaluation.local_model import LocalModel

            answering = LocalModel(str(model), warmth, length, batch)
        taken = "-".join(map(str, benchmark.settings.values()))  # standard-boxed
        where = out or RESULTS / "evaluations" / env / answering.name.replace("/", "--") / taken / f"seed{seed}"
        found = benchmarks.evaluate_sets(benchmark, answering, names, where, seed, limit)
    if as_json:
        print(json.dumps(found, sort_keys=True))
    else:
        console().print(to_terminal(scores_table(found)))
        print(f"every reply and grade: {where / 'items.jsonl'}")


def _evaluate_run(run_dir: Path, task_set: str | None, as_json: bool) -> None:
    from r3l.evaluation.evaluate import evaluate_run, run_of
    from r3l.runs.gpu_locks import reserved_gpus
    from r3l.workflow import resources

    if not run_dir.is_dir():  # asked here because evaluating locks, and so creates, the directory
        raise DataError(f"run directory {run_dir} does not exist; train first, or correct the path")
    with reserved_gpus(resources.requested_resources(resources.load(), "evaluate", run_of(run_dir)).gpu):
        evaluation = evaluate_run(run_dir, task_set=task_set)
    scores = {group: values["success"] for group, values in evaluation["groups"].items()}
    print_result(evaluation, as_json, f"{evaluation['cell']} seed {evaluation['seed']}: success {pairs(scores)}")
