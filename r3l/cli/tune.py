"""`r3l tune`: chooses learning rates."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from r3l.cli.arguments import RESULTS, AsJson, Cores, Results, Tier, check_cores, environments_named
from r3l.cli.printing import print_shown
from r3l.cli.workflow import line, make, placement
from r3l.core.errors import ConfigError
from r3l.files.paths import STORED

if TYPE_CHECKING:
    from r3l.config import Run


def tune(
    method: Annotated[str | None, typer.Argument(help="A method or variant. With --show: default all.")] = None,
    env: Annotated[str | None, typer.Option(help="Environment; with --show several, comma-separated.")] = None,
    tier: Tier = "nano",
    show: Annotated[bool, typer.Option("--show", help="Show the stored tunings; train nothing.")] = False,
    offline: Annotated[bool, typer.Option(help="Train nothing; choose from the runs there are.")] = False,
    results: Results = RESULTS,
    cores: Cores = "all",
    as_json: AsJson = False,
) -> None:
    """Tune a method's learning rate on validation tasks: three rates, two seeds each.

    The choice goes to results/tuning/TIER/ENV/METHOD.json. Runs use the rate once the line that is printed stands in
    the method's YAML file. Finished runs are not trained again.

    Example: `r3l tune grpo --env alfworld`

    Example: `r3l tune --show --env alfworld,webshop`
    """
    from r3l.config import variant
    from r3l.config.tuning import place, to_write
    from r3l.evaluation.tuning import tuning
    from r3l.files.writing import writable, write_json_atomic
    from r3l.report.render import to_terminal
    from r3l.report.tuning import tuning_table, tunings
    from r3l.workflow import plan

    envs = environments_named(env)
    if show:
        found = tunings(STORED if results == RESULTS else results, tier, envs, method)
    elif method is None or envs is None or len(envs) > 1:
        raise ConfigError("give a method and an environment (r3l tune grpo --env alfworld), or --show")
    else:
        check_cores(cores)
        row = variant(method)
        planned = plan.tuning_runs(tier, envs[0], row.name)
        tried = {rate: {results / path: run for path, run in runs.items()} for rate, runs in planned.items()}
        if not offline:
            _train(tried, results, cores)
        found = [tuning(row.name, tried)]
        path = results / place(tier, envs[0], row)
        with writable(path):
            write_json_atomic(path, found[0])
    print_shown({"tunings": found}, as_json, to_terminal(tuning_table(found)))
    if not (as_json or show):
        print(to_write(tier, found[0]["env"], variant(found[0]["method"]), found[0]["chosen"]))


def _train(tried: Mapping[str, Mapping[Path, Run]], results: Path, cores: str) -> None:
    from r3l.local.checkpoint import check_template
    from r3l.runs.changed_code import set_aside_changed
    from r3l.runs.run_paths import validation_evaluation

    if results != RESULTS:
        raise ConfigError(f"--results is {results}, but runs are made under {RESULTS}/; add --offline to read it")
    runs = {run_dir: run for of_rate in tried.values() for run_dir, run in of_rate.items()}
    targets = [str(validation_evaluation(run_dir, run)) for run_dir, run in runs.items()]
    check_template(next(iter(runs.values())))  # all start from one model
    for run_dir, run in runs.items():
        set_aside_changed(run_dir, run)
    first = next(iter(runs.values()))
    command = line(targets, {"tier": first.tier, "envs": [first.env]}, placement(None, cores))
    make(command, {str(run_dir.relative_to(results)): run for run_dir, run in runs.items()}, "validation")
