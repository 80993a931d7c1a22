"""`r3l compare`: a method against others, seed by seed; how many seeds a difference takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from r3l.cli.arguments import (
    RESULTS,
    AsJson,
    Cores,
    Envs,
    Seeds,
    SeveralResults,
    StoredRuns,
    Tier,
    check_cores,
    configured,
    environments_named,
    listed,
    output,
    refuse_unused,
    seeds_named,
)
from r3l.cli.printing import print_shown
from r3l.cli.workflow import line, make, placement
from r3l.core.errors import ConfigError
from r3l.core.text import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from r3l.config import Run
    from r3l.report.compare import MethodComparison
    from r3l.report.power import SeedPlan
    from r3l.report.records import Record
    from r3l.report.registered import RegisteredRow
    from r3l.stats.power import PowerTarget
    from r3l.workflow.plan import WorkflowConfig

DEFAULT_SEEDS = [0, 1, 2]


def compare(
    ctx: typer.Context,
    method: Annotated[
        str | None, typer.Argument(help="A file of configs/methods/ or $R3L_METHODS, or a variant.")
    ] = None,
    against: Annotated[str, typer.Option(help="Methods, comma-separated; or all: those of Table 1.")] = "grpo,r3l",
    tier: Tier = "nano",
    env: Envs = None,
    seed: Seeds = None,
    group: Annotated[str, typer.Option(help="Test tasks: all, easy or hard.")] = "all",
    results: SeveralResults = None,
    stored: StoredRuns = None,
    cores: Cores = "all",
    offline: Annotated[bool, typer.Option("--offline", help="Train nothing; compare the runs there are.")] = False,
    power: Annotated[
        float | None,
        typer.Option(help="Instead: seeds and core-hours to detect --difference with this power, such as 0.8."),
    ] = None,
    difference: Annotated[float, typer.Option(help="With --power: the difference to detect.")] = 0.05,
    comparisons: Annotated[
        int, typer.Option(min=1, help="With --power: comparisons that Holm's correction will cover.")
    ] = 1,
    registered: Annotated[
        bool, typer.Option("--registered", help="Instead: the primary comparisons of docs/preregistration.md.")
    ] = False,
    out: Annotated[Path | None, output("Also write the rows as JSON.")] = None,
    html: Annotated[Path | None, output("Also write the report of these runs: the table, tasks, trajectories.")] = None,
    as_json: AsJson = False,
) -> None:
    """Train a method where it is not trained yet, then compare it with the stored baselines, seed by seed.

    By default with the seeds 0, 1 and 2; with `--offline` with all seeds that both methods have, and where you have no
    runs of the method with the stored ones.

    With `--power`: how many seeds, and core-hours, a difference takes, given the variance of the stored runs; and the
    minimum detectable effect of 3, 5, 10 and 20 seeds.

    Example: `r3l compare raft --env alfworld --seed 0,1,2`

    Example: `r3l compare raft --env math --html compared.html`

    Example: `r3l compare r3l --against grpo --power 0.8 --difference 0.05`

    Example: `r3l compare --registered`
    """
    from r3l.evaluation.stored_runs import stored_runs
    from r3l.report import compare as comparison
    from r3l.report import html as report
    from r3l.report import records
    from r3l.report.render import to_terminal
    from r3l.runs.run_paths import first_found, runs_of
    from r3l.stats.power import ALPHA, PowerTarget
    from r3l.workflow import plan

    if registered:
        refuse_unused(ctx, "--registered, which has its own methods and rules", {"registered", "stored"})
        if method is not None:
            raise ConfigError(f"--registered has its own methods; leave out {method!r}")
        _print_registered(stored, as_json)
        return
    if method is None:
        raise ConfigError("name a method to compare (r3l compare grpo), or give --registered")
    opponents = opponents_of(method, against, tier)
    if power is not None:
        used = {"against", "tier", "env", "group", "stored", "power", "difference", "comparisons", "out"}
        refuse_unused(ctx, "--power, which trains nothing", used)
        _check_share("--power", power, 0.1, 0.999)
        _check_share("--difference", difference, 0.001, 1)
        paths = runs_of(stored or stored_runs(), [method, *opponents], tier, environments_named(env))
        stored_records = records.load(paths)
        compared = comparison.compare(stored_records, method, opponents, group)
        _print_power(compared, stored_records, difference, PowerTarget(ALPHA, power, comparisons), out, as_json)
        return
    used = {"against", "tier", "env", "seed", "group", "results", "stored", "cores", "offline", "out", "html"}
    refuse_unused(ctx, "a comparison (without --power)", used)
    if results and not offline:
        raise ConfigError(f"--results is {results[0]}, but runs are made under {RESULTS}/; add --offline to read it")
    check_cores(cores)
    seeds = seeds_named(seed)
    config = configured(tier, methods=[method], envs=listed(env, "--env"), seeds=seeds or DEFAULT_SEEDS)
    runs = plan.grid(config, config.envs, [method])
    plan.grid(config, config.envs, opponents)  # an unknown name is an error before anything trains
    if not offline:
        _train(runs, config, cores)
    folders = results or [RESULTS]
    cells = sorted({run.cell for run in runs.values()})
    own = own_runs(folders, cells, seeds if offline else config.seeds)
    if offline and not own and not results:
        own = own_runs([stored or stored_runs()], cells, seeds)
    found = [runs_of(stored or stored_runs(), opponents, tier, config.envs)]
    found += [runs_of(folder, opponents, tier, config.envs, may_be_none=True) for folder in folders]
    loaded = records.load([*own, *first_found(found)])
    rows = comparison.compare(loaded, method, opponents, group)
    shown = comparison.comparison_table(rows)
    if html:
        report.write(loaded, [], len(seeds or DEFAULT_SEEDS), html, first=[shown])
    _print(rows, out, as_json, to_terminal(shown))
    if not as_json:
        _print_closing(rows, method, sorted({path.parent.parent for path in own}))


def _print_closing(rows: Sequence[MethodComparison], method: str, cells: Sequence[Path]) -> None:
    """Warnings, where the runs lie, what to type next."""
    for row in rows:
        for warning in row.warnings:
            print(printable(f"warning: {row.env}, {method} against {row.against}: {warning}"))
    print(printable("\n".join(f"runs of {method}: {cell}/" for cell in cells)))
    print(
        f"next: r3l compare {method} --power 0.8 says how many seeds a difference takes; --html FILE shows these runs"
    )


def _train(runs: dict[str, Run], config: WorkflowConfig, cores: str) -> None:
    from r3l.runs.changed_code import set_aside_changed
    from r3l.runs.run_dir import EVALUATION

    for path, run in runs.items():  # before snakemake deletes what it will make again
        set_aside_changed(RESULTS / path, run)
    targets = [str(RESULTS / path / EVALUATION) for path in runs]
    changes = {"tier": config.tier, "methods": config.methods, "envs": config.envs, "seeds": config.seeds}
    make(line(targets, changes, placement(None, cores)), runs)


def _print_power(
    compared: list[MethodComparison],
    runs: list[Record],
    difference: float,
    target: PowerTarget,
    out: Path | None,
    as_json: bool,
) -> None:
    from r3l.report.power import power_rows, power_table
    from r3l.report.render import to_terminal

    rows = power_rows(compared, runs, difference, target)
    _print(rows, out, as_json, to_terminal(power_table(rows, difference, target)))


def _print_registered(stored: Path | None, as_json: bool) -> None:
    """The rows by the plan's own test and stopping rule."""
    from r3l.evaluation.stored_runs import stored_runs
    from r3l.report import records
    from r3l.report.registered import load_registered, of_base_checkpoints, registered_rows, registered_table
    from r3l.report.render import to_terminal
    from r3l.runs.run_paths import runs_of

    plan = load_registered()
    paths = runs_of(stored or stored_runs(), [plan.method, plan.against], plan.tier, plan.envs)
    rows = registered_rows(of_base_checkpoints(records.load(paths), plan), plan)
    _print(rows, None, as_json, to_terminal(registered_table(rows, plan)))


def _print(
    rows: Sequence[MethodComparison | SeedPlan | RegisteredRow], out: Path | None, as_json: bool, shown: RenderableType
) -> None:
    """Rows as a table or as JSON, which ``out`` gets too."""
    from r3l.files.writing import writable, write_json_atomic

    flat = [row.flat() for row in rows]
    if out:
        with writable(out):
            write_json_atomic(out, flat)
    print_shown({"rows": flat}, as_json, shown)


def offline_command(method: str, tier: str, envs: Iterable[str]) -> str:
    """The command that compares finished runs of ``method`` with the stored baselines."""
    where = "" if tier == "nano" else f" --tier {tier}"
    return f"r3l compare {method} --env {','.join(sorted(set(envs)))}{where} --offline"


def own_runs(folders: list[Path], cells: list[str], seeds: list[int] | None) -> list[Path]:
    """The evaluated runs of ``cells`` under ``folders``; ``seeds`` None: of all seeds."""
    pattern = "{}/seed*/evaluation.json"
    found = [path for folder in folders for cell in cells for path in sorted(folder.glob(pattern.format(cell)))]
    names = None if seeds is None else {f"seed{seed}" for seed in seeds}
    return [path for path in found if names is None or path.parent.name in names]


def opponents_of(method: str, against: str, tier: str) -> list[str]:
    """The methods of ``--against``, or all of Table 1, without ``method``. Raises ConfigError where none is left."""
    from r3l.workflow import plan

    table1 = configured(tier, grid="full").rows(plan.tables()["table1"])
    named = table1 if against == "all" else listed(against, "--against") or []
    others = [other for other in named if other != method]
    if not others:
        raise ConfigError(f"--against is {against!r}; name a method other than {method!r}, or all")
    return others


def _check_share(option: str, value: float, low: float, high: float) -> None:
    """Raises ConfigError for a value out of range, or NaN."""
    if not low <= value <= high:
        raise ConfigError(f"{option} is {value:g}; it must be a number from {low:g} to {high:g}")
