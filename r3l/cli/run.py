"""`r3l run`: makes tables, figures and runs with the Snakemake workflow; shows their state and cost."""

from __future__ import annotations

import glob
import shlex
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from r3l.cli.arguments import (
    RESULTS,
    AsJson,
    Cores,
    Envs,
    Methods,
    Overrides,
    Seeds,
    SomeTier,
    check_cores,
    configured,
    listed,
    seeds_named,
    workflow_values,
)
from r3l.cli.compare import offline_command
from r3l.cli.printing import print_result, print_shown
from r3l.cli.workflow import (
    RENAMED,
    check_models,
    count_jobs,
    default_resources,
    dirs_of_other_runs,
    placement_options,
    require_executor,
    run_snakemake,
    snakemake_command,
)
from r3l.core.errors import ConfigError, check_known
from r3l.core.text import printable

if TYPE_CHECKING:
    from r3l.config import Run
    from r3l.workflow.plan import WorkflowConfig

CLAIM = 3  # least number of seeds for a claim


Targets = Annotated[
    list[str] | None,
    typer.Argument(help="Tables (table1), figures (figures/alpha), budget, report, files under results/."),
]
TheirModel = Annotated[
    str | None, typer.Option("--model", help="Stored model, folder or hub id. Default: the tier's.")
]
Grid = Annotated[str | None, typer.Option(help="Rows of a table: core or full.")]


def run(
    targets: Targets = None,
    tier: SomeTier = None,
    env: Envs = None,
    method: Methods = None,
    model: TheirModel = None,
    seed: Seeds = None,
    grid: Grid = None,
    overrides: Overrides = None,
    logger: Annotated[
        list[str] | None, typer.Option(help="Also log to tensorboard or wandb (offline); repeatable.")
    ] = None,
    cores: Cores = "all",
    profile: Annotated[
        str | None, typer.Option(help="Snakemake profile instead of --cores: a folder of workflow/profiles/.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the jobs and their GPU hours; start nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make tables and figures: train and evaluate the missing runs, with a line of progress for each.

    With `--method` and no TARGET it only trains and evaluates these methods, environments and seeds. Without
    both it makes Table 1, its figure and the learning curves. Ctrl-C stops it; re-run to resume. Defaults:
    configs/workflow.yaml.

    Example: `r3l run`

    Example: `r3l run table2 figures/ablations --seed 0,1,2 --env alfworld`

    Example: `r3l run --env alfworld --method r3l@alpha=5 --seed 3`

    Example: `r3l run table1 --tier paper --profile slurm --dry-run`
    """
    from r3l.workflow import plan
    from r3l.workflow.resources import check_profile

    check_cores(cores)
    placement = placement_options(profile, cores)
    if profile:
        require_executor(profile)
    if profile and not dry_run:
        check_profile(default_resources(profile))
    content = workflow_values(tier, **_grid_options(env, method, model, seed, grid, overrides, logger))
    config = plan.load(content)
    files, runs = _planned(targets, config)
    if model is not None:
        check_models(RESULTS, runs)
    to_prepare = _to_prepare(profile, runs, as_json) if dry_run else []
    usual = plan.workflow_content()
    changes = {key: value for key, value in content.items() if key != "sources" and usual.get(key) != value}
    command = snakemake_command(files, changes, placement + (_restarts(profile, runs) if profile else []))
    if dry_run:
        _print_jobs(command, runs, config, to_prepare, as_json)
        return
    # Imported only now: pandas and scipy take a dry run longer than its own work.
    from r3l.cli.table import table
    from r3l.evaluation import stored_runs
    from r3l.report.reproduction import reproduction
    from r3l.runs.run_dir import EVALUATION

    began = time.monotonic()
    run_snakemake(command, runs)

    # Each file, and the same in other formats next to it.
    paths: list[Path] = []
    for file in map(Path, files):
        paths += sorted(file.parent.glob(f"{glob.escape(file.stem)}.*"))
    made = [str(path) for path in dict.fromkeys(paths)]
    rows = reproduction([RESULTS / key / EVALUATION for key in runs], stored_runs.folder())
    compared = dict(Counter(row["verdict"] for row in rows))
    tables = plan.tables()
    for path in map(Path, files):
        if path.suffix == ".csv" and path.stem in tables and not as_json:
            spec = tables[path.stem]
            own = [RESULTS / key / EVALUATION for key in plan.runs(config, spec)]
            methods = ",".join(config.rows(spec))
            table(path.stem, own, method=methods, seeds_planned=len(config.seeds))
    text = _closing(made, compared, time.monotonic() - began, runs, config)
    print_result({"made": made, "runs": list(runs), "compared": compared}, as_json, text)


def status(
    targets: Targets = None,
    tier: SomeTier = None,
    env: Envs = None,
    method: Methods = None,
    model: TheirModel = None,
    seed: Seeds = None,
    grid: Grid = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Show which runs are done, running, stopped, failed or missing. Nothing is started.

    Expected times come from finished runs, yours or stored ones.

    Example: `r3l run status table1 --seed 0,1,2`
    """
    from r3l.evaluation import stored_runs
    from r3l.report.progress import status_table
    from r3l.runs.run_paths import find_runs
    from r3l.workflow import status as surveys

    config = configured(tier, **_grid_options(env, method, model, seed, grid, overrides))
    _, runs = _planned(targets, config)

    def times() -> Mapping[surveys.Key, float]:
        finished = [path.parent for path in find_runs(stored_runs.folder(), may_be_none=True)]
        return surveys.learned_times([*finished, *(RESULTS / path for path in runs)])

    statuses = surveys.survey(runs, RESULTS, times)
    print_shown({"runs": [status.as_json() for status in statuses]}, as_json, status_table(statuses))
    if as_json:
        return
    left = _gpu_hours([status.run for status in statuses if status.state != "done"], config)
    if left:
        print(f"Left: {left['summary']}")


def _grid_options(
    env: str | None,
    method: str | None,
    model: str | None,
    seed: str | None,
    grid: str | None,
    overrides: list[str] | None,
    logger: list[str] | None = None,
) -> dict[str, Any]:
    """The options of the commands by the keys of configs/workflow.yaml; None: not given."""
    return {
        "envs": listed(env, "--env"),
        "methods": listed(method, "--method"),
        "model": model,
        "seeds": seeds_named(seed),
        "grid": grid,
        "set": overrides,
        "loggers": logger,
    }


def _restarts(profile: str, runs: Mapping[str, Run]) -> list[str]:
    """The option of snakemake for restarts; none if every training should fit into its time limit.

    A job restarts as often as the longest training reaches its time limit, and as often again as the profile
    allows for other reasons.
    """
    from r3l.files.paths import WORKFLOW
    from r3l.files.yaml_files import read_yaml
    from r3l.report.gpu_hours import training_hours
    from r3l.workflow.resources import load, requested_resources

    requests = load()
    cells = {run.cell: run for run in runs.values()}.values()  # all seeds of a cell take equally long
    parts = 1
    for run in cells:
        parts = max(parts, requested_resources(requests, "train", run, training_hours(run)).parts)
    if parts == 1:
        return []
    for_failures = read_yaml(WORKFLOW / "profiles" / profile / "config.yaml").get("restart-times", 0)
    return ["--restart-times", str(parts - 1 + for_failures)]


def _planned(targets: list[str] | None, config: WorkflowConfig) -> tuple[list[str], dict[str, Run]]:
    """The files to make, and the runs that they need, by directory under results/. Raises ConfigError."""
    from r3l.report.figures import FIGURES
    from r3l.runs.run_dir import EVALUATION
    from r3l.workflow import plan
    from r3l.workflow.jobs import DEFAULT_TARGETS, PAGES

    if not targets and config.methods:
        runs = plan.grid(config, config.envs, config.methods)
        return [str(RESULTS / path / EVALUATION) for path in runs], runs
    tables = plan.tables()
    known = {name: f"{name}.csv" for name in tables} | PAGES
    known |= {f"figures/{name}": f"figures/{name}.png" for name in FIGURES}
    files = []
    for target in targets or ():
        if Path(target).is_relative_to(RESULTS) and ".." not in Path(target).parts:
            files.append(target)
        else:
            check_known("target", target, known)
            files.append(str(RESULTS / known[target]))
    files = files or list(DEFAULT_TARGETS)

    # A figure or a page shows the runs of a table; other files, such as a base checkpoint, need none.
    needed: dict[str, Run] = {}
    for path in map(Path, files):
        if path.name == EVALUATION:  # of one run, which some table plans
            for table in tables.values():
                planned = plan.runs(config, table)
                needed |= {key: run for key, run in planned.items() if RESULTS / key == path.parent}
            continue
        name = path.stem
        if path.parent.name == "figures" and path.stem in FIGURES:
            name = FIGURES[path.stem].table
        elif path.name in PAGES.values():
            name = "table1"
        if name in tables:
            needed |= plan.runs(config, tables[name])
    return files, needed


def _to_prepare(profile: str | None, runs: Mapping[str, Run], as_json: bool) -> list[str]:
    """List what is left to prepare before ``runs`` can start: weights, data, and a cluster's profile.

    Printed at once, unless ``as_json``: the jobs, which snakemake counts next, may take a minute.
    """
    from r3l.workflow.doctor import lacking
    from r3l.workflow.resources import check_profile

    found = []
    try:
        if profile:
            check_profile(default_resources(profile))
    except ConfigError as error:
        found.append(str(error))
    found += lacking(runs.values())
    if found and not as_json:
        lines = ["Before it can start:", *(f"- {text}" for text in found), "Counting jobs and hours ..."]
        print(printable("\n".join(lines)), flush=True)
    return found


def _print_jobs(
    command: list[str],
    runs: Mapping[str, Run],
    config: WorkflowConfig,
    to_prepare: list[str],
    as_json: bool,
) -> None:
    """Print the command, the directories that it would rename, its jobs, and their GPU hours.

    ``to_prepare``: what is left to prepare, for the JSON object.
    """
    from r3l.report import gpu_hours

    # The jobs, by snakemake's own dry run, and their cost.
    renamed = dirs_of_other_runs(runs)
    jobs = count_jobs(command, renamed)
    hours = _gpu_hours(list(runs.values()), config)
    if hours and not as_json:
        seeds = len(config.seeds)
        print_shown({}, False, gpu_hours.cost_table(hours["costs"], seeds, "GPU hours"))
    words = ", ".join(f"{count} x {kind}" for kind, count in jobs.items())
    if not jobs:
        words = "nothing: everything is finished"
    cost = {"gpu_hours": hours["rows"]} if hours else {}
    lines = [shlex.join(command), *(f"{place} {RENAMED}" for place in renamed), f"would start: {words}"]
    result = {"command": command, "jobs": jobs, **cost, "to_prepare": to_prepare}
    print_result(result, as_json, "\n".join(lines))


def _gpu_hours(runs: Sequence[Run], config: WorkflowConfig) -> dict[str, Any]:
    """The cost of ``runs`` by published seconds per step; empty for a tier that trains on this machine."""
    from r3l.config import TierConfig, load
    from r3l.report import gpu_hours

    if not runs or load("tiers", config.tier, TierConfig).engine != "trinity":
        return {}
    costs = gpu_hours.costs(runs)
    rows = [asdict(cost) for cost in dict.fromkeys(costs)]  # seeds have equal ones
    return {"costs": costs, "rows": rows, "summary": gpu_hours.summary(costs, len(config.seeds))}


def _closing(
    made: Sequence[str],
    compared: Mapping[str, int],
    seconds: float,
    runs: Mapping[str, Run],
    config: WorkflowConfig,
) -> str:
    """The files, the comparison with stored runs, and next commands that find these runs."""
    from r3l.processes.progress import clock

    lines = [f"Made in {clock(seconds)}:", *(f"  {path}" for path in made)]
    if compared:
        counts = ", ".join(f"{count} {verdict}" for verdict, count in compared.items())
        counts = counts.replace("another", "of another")  # "2 of another configuration"
        lines.append(f"Compared with the stored runs: {counts} (details: r3l verify results).")
    commands = {"r3l report": "one HTML page of the runs, with their trajectories"}
    if len(config.seeds) < CLAIM:
        commands["the same with --seed 0,1,2"] = "more seeds: one shows that it works, a claim needs three"
    if {"r3l", "grpo"} <= {run.method for run in runs.values()}:
        offline = offline_command("r3l", config.tier, (run.env for run in runs.values()))
        commands[f"{offline} --against grpo"] = "one method against another, seed by seed"
    lines.append("Next:")
    width = max(map(len, commands))
    lines += [f"  {command:{width}}  {meaning}" for command, meaning in commands.items()]
    return "\n".join(lines)
