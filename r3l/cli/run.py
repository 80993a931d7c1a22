"""The verb that makes tables and figures, training what they need: `r3l run`."""

from __future__ import annotations

import shlex
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from r3l.cli.arguments import RESULTS, AsJson, Envs, Overrides, Seeds, check_cores, listed, numbers
from r3l.cli.compare import offline_command
from r3l.cli.printing import print_result
from r3l.cli.workflow import jobs_of, line, make, placement
from r3l.core.errors import check_known

if TYPE_CHECKING:
    from r3l.config import Run
    from r3l.workflow.plan import WorkflowConfig

PAGES = {"budget": "budget.csv", "report": "report.html"}  # besides tables and figures; of the runs of Table 1
CLAIM = 3  # seeds that it takes at least


def run(
    targets: Annotated[
        list[str] | None,
        typer.Argument(help="Tables (table1), figures (figures/alpha), budget, report, files under results/."),
    ] = None,
    tier: Annotated[str | None, typer.Option(help="Default: configs/workflow.yaml.")] = None,
    env: Envs = None,
    method: Annotated[str | None, typer.Option(help="Rows, by commas. Default: the table's.")] = None,
    seeds: Seeds = None,
    grid: Annotated[str | None, typer.Option(help="core or full rows.")] = None,
    overrides: Overrides = None,
    logger: Annotated[list[str] | None, typer.Option(help="Of every run: tensorboard or wandb.")] = None,
    cores: Annotated[str, typer.Option(help="Without --profile: how many may work.")] = "all",
    profile: Annotated[str | None, typer.Option(help="A folder of workflow/profiles/, e.g. slurm.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be started; start nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make tables and figures, training and evaluating what is missing; a line a run says how far it is.

    Ctrl-C stops it; the same command goes on. Default: Table 1, its figure and the learning curves.

    Example: `r3l run`

    Example: `r3l run table2 figures/ablations --seeds 0,1,2 --env alfworld`

    Example: `r3l run table1 --profile slurm --dry-run`
    """
    from r3l.workflow import plan
    from r3l.workflow.jobs import DEFAULT_TARGETS

    check_cores(cores)
    given = {
        "envs": listed(env, "--env"),
        "methods": listed(method, "--method"),
        "seeds": numbers(seeds),
        "grid": grid,
        "set": overrides,
        "loggers": logger,
    }
    content = plan.workflow_content(tier) | {key: value for key, value in given.items() if value is not None}
    usual = plan.workflow_content()
    changes = {key: value for key, value in content.items() if key != "sources" and usual.get(key) != value}
    files = [file_of(target) for target in targets] if targets else list(DEFAULT_TARGETS)
    config = plan.load(content)
    runs, command = runs_behind(files, config), line(files, changes, placement(profile, cores))
    if dry_run:
        jobs = jobs_of(command)
        words = ", ".join(f"{count} x {kind}" for kind, count in jobs.items()) or "nothing, all is made"
        print_result({"command": command, "jobs": jobs}, as_json, f"{shlex.join(command)}\nwould start: {words}")
        return
    began = time.monotonic()
    make(command, runs)
    made = _made(files)
    compared = _compared(runs)
    if not as_json:
        _show_tables(files, runs, config)
    text = _closing(made, compared, time.monotonic() - began, _next(runs, config))
    print_result({"made": made, "runs": list(runs), "compared": compared}, as_json, text)


def file_of(target: str) -> str:
    """The file that a target is called after. Raises ConfigError for one that there is not."""
    from r3l.report.figures import FIGURES
    from r3l.workflow import plan

    if Path(target).is_relative_to(RESULTS):
        return target
    files = {name: f"{name}.csv" for name in plan.tables()} | PAGES
    files |= {f"figures/{name}": f"figures/{name}.png" for name in FIGURES}
    check_known("target", target, files)
    return str(RESULTS / files[target])


def runs_behind(files: Sequence[str], config: WorkflowConfig) -> dict[str, Run]:
    """The runs that ``files`` are made of, by their directories under results/; none of a start model, say."""
    from r3l.report.figures import FIGURES
    from r3l.runs.places import EVALUATION
    from r3l.workflow import plan

    tables = plan.tables()
    of_page = {str(RESULTS / page): "table1" for page in PAGES.values()}
    planned: dict[str, Run] = {}
    for path in map(Path, files):
        table = FIGURES[path.stem].table if path.parent.name == "figures" else of_page.get(str(path), path.stem)
        if table in tables:
            planned |= plan.runs(config, tables[table])
        elif path.name == EVALUATION:
            every = {key: run for known in tables.values() for key, run in plan.runs(config, known).items()}
            planned |= {key: run for key, run in every.items() if RESULTS / key == path.parent}
    return planned


def _made(files: Sequence[str]) -> list[str]:
    """Each file, and what was written beside it in other forms."""
    paths = [sibling for file in map(Path, files) for sibling in sorted(file.parent.glob(f"{file.stem}.*"))]
    return [str(path) for path in dict.fromkeys(paths)]


def _compared(runs: Mapping[str, Run]) -> dict[str, int]:
    """How many runs are what, beside the stored ones."""
    from r3l.report.comparison.reproduction import reproduction
    from r3l.runs import stored_archive
    from r3l.runs.places import EVALUATION

    rows = reproduction(RESULTS, stored_archive.folder(), [RESULTS / key / EVALUATION for key in runs])
    return dict(Counter(row["verdict"] for row in rows))


def _show_tables(files: Sequence[str], runs: Mapping[str, Run], config: WorkflowConfig) -> None:
    from r3l.cli.table import table
    from r3l.workflow import plan

    tables = plan.tables()
    for path in map(Path, files):
        if path.suffix == ".csv" and path.stem in tables:
            own = [RESULTS / key / "evaluation.json" for key in plan.runs(config, tables[path.stem])]
            rows = ",".join(config.rows(tables[path.stem]))
            table(path.stem, own, rows=rows, seeds_planned=len(config.seeds))


def _next(runs: Mapping[str, Run], config: WorkflowConfig) -> dict[str, str]:
    """What to type next: only what finds these runs."""
    following = {"r3l report": "one HTML page of the runs, with their trajectories"}
    if len(config.seeds) < CLAIM:
        following["the same with --seeds 0,1,2"] = "more seeds: one shows that it works, a claim needs three"
    if {"r3l", "grpo"} <= {run.method for run in runs.values()}:
        command = offline_command("r3l", config.tier, (run.env for run in runs.values()))
        following[f"{command} --against grpo"] = "one method against another, seed by seed"
    return following


def _closing(made: Sequence[str], compared: Mapping[str, int], seconds: float, following: Mapping[str, str]) -> str:
    """What was made, whether it is what is stored, what to do next."""
    from r3l.processes.progress import clock

    held = ", ".join(f"{count} {verdict}" for verdict, count in compared.items())
    held = held.replace("another", "of another")
    beside = [f"Compared with the stored runs: {held} (r3l reproduced says more)."] if compared else []
    lines = [f"Made in {clock(seconds)}:", *(f"  {path}" for path in made), *beside]
    width = max(map(len, following))
    return "\n".join([*lines, "Next:", *(f"  {command:{width}}  {what}" for command, what in following.items())])
