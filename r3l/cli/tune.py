"""`r3l tune`: chooses learning rates."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from r3l.cli.arguments import RESULTS, AsJson, Cores, Envs, Results, Tier, check_cores, named
from r3l.cli.printing import print_shown
from r3l.cli.workflow import placement_options, run_snakemake, snakemake_command
from r3l.core.errors import ConfigError
from r3l.files.paths import STORED

if TYPE_CHECKING:
    from r3l.config import Run


def tune(
    method: Annotated[str, typer.Argument(help="A method or variant.")],
    env: Annotated[str, typer.Option(help="Environment: a file of configs/envs/.")],
    tier: Tier = "nano",
    offline: Annotated[bool, typer.Option(help="Train nothing; choose from finished runs.")] = False,
    results: Results = RESULTS,
    cores: Cores = "all",
    as_json: AsJson = False,
) -> None:
    """Tune a method's learning rate on validation tasks: three rates, four seeds each.

    The choice goes to results/tuning/TIER/ENV/METHOD.json. Runs use it once you add the printed line to the
    method's YAML file. Finished runs are not trained again. --results is
    accepted only with --offline.

    Example: `r3l tune grpo --env alfworld`
    """
    from r3l.config import variant
    from r3l.config.tuning import tuning_file, yaml_line
    from r3l.evaluation.tuning import tuning
    from r3l.files.writing import writable, write_json_atomic
    from r3l.local.checkpoint import check_start
    from r3l.report.tuning import tuning_table
    from r3l.runs.changed_code import set_aside_changed
    from r3l.runs.run_paths import validation_evaluation
    from r3l.workflow import plan

    named("--env", env)
    check_cores(cores)
    row = variant(method)
    tried: dict[str, dict[Path, Run]] = {}
    for rate, planned in plan.tuning_runs(tier, env, row.name).items():
        tried[rate] = {results / path: run for path, run in planned.items()}
    if not offline:
        if results != RESULTS:
            raise ConfigError(
                f"--results is {results}, but runs are made under {RESULTS}/; add --offline to read it"
            )
        runs: dict[Path, Run] = {}
        for of_rate in tried.values():
            runs |= of_rate
        targets = [str(validation_evaluation(run_dir, run)) for run_dir, run in runs.items()]
        first = next(iter(runs.values()))
        check_start(first)  # all start from one model
        for run_dir, run in runs.items():
            set_aside_changed(run_dir, run)
        changes = {"tier": first.tier, "envs": [first.env]}
        command = snakemake_command(targets, changes, placement_options(None, cores))
        by_directory = {str(run_dir.relative_to(results)): run for run_dir, run in runs.items()}
        run_snakemake(command, by_directory, "validation")
    chosen = tuning(row.name, tried)
    path = results / tuning_file(tier, env, row)
    with writable(path):
        write_json_atomic(path, chosen)
    print_shown({"tunings": [chosen]}, as_json, tuning_table([chosen]))
    if not as_json:
        print(yaml_line(tier, env, row, chosen["chosen"]))


def show(
    method: Annotated[str | None, typer.Argument(help="A method or variant. Default: all.")] = None,
    env: Envs = None,
    tier: Tier = "nano",
    results: Annotated[Path, typer.Option(help="Folder with tuning/TIER/ENV/METHOD.json.")] = STORED,
    as_json: AsJson = False,
) -> None:
    """Show finished tunings: by default the stored ones.

    Example: `r3l tune show --env alfworld,webshop`
    """
    from r3l.report.tuning import tuning_table, tunings

    found = tunings(results, tier, named("--env", env), method)
    print_shown({"tunings": found}, as_json, tuning_table(found))
