"""`r3l train`: trains one run."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from r3l.cli.arguments import AsJson, Env, Method, Model, Overrides, Seed, Tier, with_name
from r3l.cli.printing import print_result
from r3l.core.errors import check_known

if TYPE_CHECKING:
    from r3l.config import Run


def train(
    tier: Tier = "nano",
    env: Env = "alfworld",
    method: Method = "r3l",
    model: Model = None,
    seed: Seed = 0,
    overrides: Overrides = None,
    engine: Annotated[str | None, typer.Option(help="local or trinity. Default: the tier's.")] = None,
    run_dir: Annotated[
        Path | None, typer.Option(help="Default: results/TIER/ENV/MODEL/METHOD/seedN.", callback=with_name)
    ] = None,
    logger: Annotated[
        list[str] | None, typer.Option(help="Also log to tensorboard or wandb (offline); repeatable.")
    ] = None,
    set_aside: Annotated[
        bool, typer.Option(help="Rename a directory that holds another configuration.")
    ] = False,
    minutes: Annotated[
        float | None, typer.Option(min=0, help="Time limit; exit code 75; re-run to resume.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Train one run; re-run to resume.

    Example: `r3l train --method grpo --seed 1 --set train.lr=1e-4`

    Example: `until r3l train --tier smol --minutes 10; do [ $? = 75 ] || break; done`

    Example: `r3l train --tier paper --set train.steps=3`, which ends with a forecast for all steps
    """
    from r3l.api.running import default_run_dir, train_run
    from r3l.config import TierConfig, load, resolve, variant
    from r3l.runs import forecast
    from r3l.runs.loggers import LOGGERS
    from r3l.runs.result import FINAL_WINDOW, best_before_fall, final_scores
    from r3l.runs.step_metrics import read_metrics

    for name in logger or []:
        check_known("logger", name, LOGGERS)
    if engine and engine != load("tiers", tier, TierConfig).engine:
        method = variant(method).changed(engine=engine).name
    run = resolve(tier, env, method, seed, model, overrides)
    where = run_dir or default_run_dir(run)
    times = forecast.StepTimes()
    result = train_run(run, where, [*(logger or ()), times], minutes, set_aside)
    # Not the means of a result that an earlier version left: its group means may be too low.
    metrics = read_metrics(where)
    text = _sentences(run, result, final_scores(metrics))
    if best := best_before_fall(metrics):
        success, last = best
        text += f"\nTraining success has fallen: it was {success:.3f} over the {FINAL_WINDOW} steps to step {last}."
    text += f"\nin {where}\nnext: r3l evaluate {shlex.quote(str(where))}"

    # A shortened run that was measured from its first step forecasts the configured one.
    shortened = [change for change in overrides or () if change.startswith("train.steps=")]
    if shortened and len(times.metrics) == run.train.steps >= forecast.LEAST_STEPS:
        others = [change for change in overrides or () if change not in shortened]
        planned = resolve(tier, env, method, seed, model, others).train.steps
        if planned > run.train.steps:
            from r3l.trinity.config import EVALUATE_EVERY
            from r3l.trinity.job import evaluation_seconds

            evaluation = evaluation_seconds(where)
            measured = times.forecast(run, None, evaluation, EVALUATE_EVERY if evaluation else 0)
            forecast.write(measured, where)
            text += f"\n{forecast.sentences(measured, planned)}"
    print_result(result, as_json, text)


def _sentences(run: Run, result: Mapping[str, Any], final: Mapping[str, float]) -> str:
    """The ``final`` training metrics of a run, as sentences."""
    from r3l.runs.result import FINAL_WINDOW

    head = f"{run.method_label} on {run.env}, seed {run.seed}: {result['steps']} steps."
    if "train/success" not in final:
        return f"{head} Nothing was trained."
    # Success by task group, and the rollouts that an error of the environment ended.
    groups = [f"{key.rpartition('/')[2]} {value:.3f}" for key, value in final.items() if "/success/" in key]
    by_group = f" ({', '.join(groups)})" if groups else ""
    steps = min(FINAL_WINDOW, result["steps"])
    budget = result["budget"]
    failed = ""
    if budget.get("env_failed"):
        failed = (
            f"\n{budget['env_failed']:.0f} of {budget['rollouts']:.0f} rollouts ended by an error in the "
            "environment; they are in no group"
        )
    return (
        f"{head} Means of the last {steps}, on training tasks:\nsuccess "
        f"{final['train/success']:.3f}{by_group}, reward {final['train/reward']:.3f}, "
        f"{final['train/turns']:.1f} turns an attempt.{failed}"
    )
