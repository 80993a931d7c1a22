"""The verb that evaluates runs and models: `r3l evaluate`."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from r3l.cli.arguments import RESULTS, AsJson, Seed
from r3l.cli.printing import console, pairs, print_result
from r3l.core.errors import ConfigError, DataError

if TYPE_CHECKING:
    pass


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
        sampling_temperature = benchmark.temperature if temperature is None else temperature
        length = max_tokens or benchmark.max_tokens
        if server:
            from r3l.evaluation.servers import Server

            answerer: benchmarks.Model = stack.enter_context(Server(server, model, sampling_temperature, length, batch))
        else:
            from r3l.evaluation.local_model import LocalModel

            answerer = LocalModel(str(model), sampling_temperature, length, batch)
        settings = "-".join(map(str, benchmark.settings.values()))  # standard-boxed
        where = out or RESULTS / "evaluations" / env / answerer.name.replace("/", "--") / settings / f"seed{seed}"
        scores = benchmarks.evaluate_sets(benchmark, answerer, names, where, seed, limit)
    if as_json:
        print(json.dumps(scores, sort_keys=True))
    else:
        console().print(to_terminal(scores_table(scores)))
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
