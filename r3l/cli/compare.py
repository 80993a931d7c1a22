"""`r3l compare`: a method against others, seed by seed; power; the pre-registered comparisons."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from r3l.cli.arguments import (
    RESULTS,
    AsJson,
    Cores,
    Envs,
    Model,
    Seeds,
    SeveralResults,
    StoredRuns,
    Tier,
    check_cores,
    configured,
    listed,
    named,
    output,
    seeds_named,
)
from r3l.cli.printing import print_shown
from r3l.cli.workflow import placement_options, run_snakemake, snakemake_command
from r3l.core.errors import ConfigError
from r3l.core.text import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from r3l.config import Run
    from r3l.report.compare import MethodComparison
    from r3l.report.power import SeedPlan
    from r3l.report.registered import RegisteredRow
    from r3l.workflow.plan import WorkflowConfig

DEFAULT_SEEDS = [0, 1, 2]
AGAINST = "grpo,r3l"
TIER = "nano"
ALL = "all"  # groups of test tasks


MethodName = Annotated[str, typer.Argument(help="A file of configs/methods/ or $R3L_METHODS, or a variant.")]
Against = Annotated[str, typer.Option(help="Methods, comma-separated; or all: the methods of Table 1.")]
Group = Annotated[str, typer.Option(help="Test tasks: all, easy or hard.")]
RowsFile = Annotated[Path | None, output("Also write the rows as JSON.")]


def compare(
    method: MethodName,
    against: Against = AGAINST,
    tier: Tier = TIER,
    env: Envs = None,
    model: Model = None,
    seed: Seeds = None,
    group: Group = ALL,
    results: SeveralResults = None,
    stored: StoredRuns = None,
    cores: Cores = "all",
    offline: Annotated[bool, typer.Option("--offline", help="Train nothing; compare finished runs.")] = False,
    out: RowsFile = None,
    html: Annotated[
        Path | None, output("Also write the report of these runs: the table, tasks, trajectories.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Train a method if it is not trained yet, then compare it with the stored baselines, seed by seed.

    Baselines without a stored run, as in your own environment, are trained too. Default: seeds 0, 1
    and 2, in ALFWorld, ScienceWorld and WebShop. With `--offline`: all seeds and environments that both
    methods have, and the stored runs of the method if you have none. `--results` needs `--offline`. With
    `--model` only runs from that base checkpoint count.

    Example: `r3l compare raft --env alfworld --seed 0,1,2`

    Example: `r3l compare raft --env math --html compared.html`
    """
    from r3l.evaluation.stored_runs import stored_runs
    from r3l.report import html as report
    from r3l.report.compare import compare_methods, comparison_table
    from r3l.report.reading import read_runs
    from r3l.runs.run_paths import CURVES, HINT_GAP, cell_of, each_run, first_found, runs_of
    from r3l.workflow import plan

    # Everything that is wrong with the command is an error before anything trains.
    opponents = opponents_of(method, against, tier)
    if results and not offline:
        raise ConfigError(
            f"--results is {results[0]}, but runs are made under {RESULTS}/; add --offline to read it"
        )
    check_cores(cores)
    seeds = seeds_named(seed)
    folders = results or [RESULTS]
    archive = stored or stored_runs()
    archives = [archive, archive / CURVES, *([archive / HINT_GAP] if model else [])]
    envs = listed(env, "--env")
    if offline and envs is None:
        envs = _envs_of(method, tier, [*folders, *archives])

    # The runs to compare: those that the workflow plans of the method, and the stored ones of its opponents.
    config = configured(tier, methods=[method], envs=envs, seeds=seeds or DEFAULT_SEEDS, model=model)
    ours = plan.grid(config, config.envs, [method])
    theirs = plan.grid(config, config.envs, opponents)
    planned = {run.cell for run in theirs.values()}

    def runs_of_opponents(folder: Path, may_be_none: bool = True) -> list[Path]:
        paths = runs_of(folder, opponents, tier, config.envs, may_be_none)
        return [path for path in paths if not model or "/".join(cell_of(path)) in planned]

    kept = each_run([runs_of_opponents(folder, folder != archive) for folder in archives])
    if not offline:
        _make_runs(ours, theirs, kept, config, cores)

    # Own runs of the method; offline the stored ones, if there are none. Of an opponent the first run found
    # counts: stored, then own.
    cells = sorted({run.cell for run in ours.values()})
    own = own_runs(folders, cells, seeds if offline else config.seeds)
    if offline and not own and not results:
        own = each_run([own_runs([folder], cells, seeds) for folder in archives])
    if offline and not own:
        _refuse_other_checkpoints(method, folders, tier, config.envs, cells)
    found = [kept, *(runs_of_opponents(folder) for folder in folders)]
    loaded = read_runs([*own, *first_found(found)])

    # The table, then what else differs between the runs, where they are, and what to do next.
    rows = compare_methods(loaded, method, opponents, group)
    shown = comparison_table(rows)
    if html:
        report.write(loaded, [], len(seeds or DEFAULT_SEEDS), html, comparison=shown)
    _print(rows, out, as_json, shown)
    if as_json:
        return
    for row in rows:
        for warning in row.warnings:
            print(printable(f"warning: {row.env}, {method} against {row.against}: {warning}"))
    for cell in sorted({path.parent.parent for path in own}):
        print(printable(f"runs of {method}: {cell}/"))
    if offline and env is None:
        for variant, elsewhere in _variants_elsewhere(method, tier, config.envs, archives).items():
            print(f"stored on {', '.join(elsewhere)}: {variant}; compare it by that name")
    power_command = shlex.join(_power_words(method, against, tier, env, group, results, stored))
    print(
        printable(
            f"next: {power_command} says how many seeds a difference takes; --html FILE shows these runs"
        )
    )


def _power_words(
    method: str,
    against: str,
    tier: str,
    env: str | None,
    group: str,
    results: Sequence[Path] | None,
    stored: Path | None,
) -> list[str]:
    """The words of the `r3l compare power` command about the runs of a comparison; defaults are left out."""
    words = ["r3l", "compare", "power", method]
    words += ["--against", against] if against != AGAINST else []
    words += ["--tier", tier] if tier != TIER else []
    words += ["--env", env] if env else []
    words += ["--group", group] if group != ALL else []
    for folder in results or ():
        words += ["--results", str(folder)]
    return words + (["--stored", str(stored)] if stored else [])


def _make_runs(
    ours: Mapping[str, Run],
    theirs: Mapping[str, Run],
    kept: Sequence[Path],
    config: WorkflowConfig,
    cores: str,
) -> None:
    """Train and evaluate what is not finished of ``ours`` and ``theirs``, runs by directory under results/.

    Of ``theirs`` only those without a stored run, ``kept``, of their method in their environment.
    """
    from r3l.runs.changed_code import set_aside_changed
    from r3l.runs.run_dir import EVALUATION
    from r3l.runs.run_paths import cell_of

    known = {(cell.env, cell.method) for cell in map(cell_of, kept)}
    missing = {path: run for path, run in theirs.items() if (run.env, run.method) not in known}
    for env, other in sorted({(run.env, run.method) for run in missing.values()}):
        print(f"there is no stored run of {other} on {env}: it is trained too", file=sys.stderr)
    runs = {**ours, **missing}
    for path, run in runs.items():  # before snakemake deletes what it will make again
        set_aside_changed(RESULTS / path, run)
    targets = [str(RESULTS / path / EVALUATION) for path in runs]
    methods = sorted({run.method for run in runs.values()})
    changes = {"tier": config.tier, "methods": methods, "envs": config.envs, "seeds": config.seeds}
    changes |= {"model": config.model} if config.model else {}
    run_snakemake(snakemake_command(targets, changes, placement_options(None, cores)), runs)


def power(
    method: MethodName,
    against: Against = AGAINST,
    tier: Tier = TIER,
    env: Envs = None,
    group: Group = ALL,
    power: Annotated[float, typer.Option(help="Probability of detecting the difference.")] = 0.8,
    difference: Annotated[float, typer.Option(help="Difference of success to detect.")] = 0.05,
    comparisons: Annotated[
        int, typer.Option(min=1, help="Comparisons that Holm's correction will cover.")
    ] = 1,
    results: SeveralResults = None,
    stored: StoredRuns = None,
    out: RowsFile = None,
    as_json: AsJson = False,
) -> None:
    """Plan seeds and core-hours to detect a difference, given the variance of finished runs.

    Reads the runs that `r3l compare --offline` compares: your own of the method, else the stored ones;
    stored ones of the others, else your own. Also shows the minimum detectable effect of 3, 5, 10 and 20
    seeds. Nothing is trained.

    Example: `r3l compare power r3l --against grpo --power 0.8 --difference 0.05`
    """
    from r3l.evaluation.stored_runs import stored_runs
    from r3l.report.compare import compare_methods
    from r3l.report.power import power_rows, power_table
    from r3l.report.reading import read_runs
    from r3l.runs.run_paths import first_found, runs_of
    from r3l.stats.comparison import ALPHA
    from r3l.stats.power import PowerTarget

    opponents = opponents_of(method, against, tier)
    _check_share("--power", power, 0.1, 0.999)
    _check_share("--difference", difference, 0.001, 1)
    envs = named("--env", env)
    folders = results or [RESULTS]
    archive = stored or stored_runs()

    def runs_in(folder: Path, methods: list[str]) -> list[Path]:
        return runs_of(folder, methods, tier, envs, may_be_none=folder != archive)

    ours = first_found(runs_in(folder, [method]) for folder in [*folders, archive])
    theirs = first_found(runs_in(folder, opponents) for folder in [archive, *folders])
    loaded = read_runs([*ours, *theirs])
    compared = compare_methods(loaded, method, opponents, group)
    target = PowerTarget(ALPHA, power, comparisons)
    rows = power_rows(compared, loaded, difference, target)
    _print(rows, out, as_json, power_table(rows, difference, target))


def registered(stored: StoredRuns = None, out: RowsFile = None, as_json: AsJson = False) -> None:
    """Show the primary comparisons of docs/preregistration.md, by its own test and stopping rule.

    Example: `r3l compare registered`
    """
    from r3l.evaluation.stored_runs import stored_runs
    from r3l.report.reading import read_runs
    from r3l.report.registered import load_registered, of_base_checkpoints, registered_rows, registered_table
    from r3l.runs.run_paths import runs_of

    plan = load_registered()
    paths = runs_of(stored or stored_runs(), [plan.method, plan.against], plan.tier, plan.envs)
    rows = registered_rows(of_base_checkpoints(read_runs(paths), plan), plan)
    _print(rows, out, as_json, registered_table(rows, plan))


def _print(
    rows: Sequence[MethodComparison | SeedPlan | RegisteredRow],
    out: Path | None,
    as_json: bool,
    shown: RenderableType,
) -> None:
    """Print rows as a table or as JSON, and write them to ``out`` as JSON."""
    from r3l.files.writing import writable, write_json_atomic

    flat = [row.flat() for row in rows]
    if out:
        with writable(out):
            write_json_atomic(out, flat)
    print_shown({"rows": flat}, as_json, shown)


def _envs_of(method: str, tier: str, folders: Iterable[Path]) -> list[str] | None:
    """The known environments in which ``folders`` have runs of ``method``, the workflow's first.

    None if there are none.
    """
    from r3l.config import names
    from r3l.runs.run_paths import cell_of, runs_of
    from r3l.workflow import plan

    found = [path for folder in folders for path in runs_of(folder, [method], tier, may_be_none=True)]
    first = configured(tier).envs
    seen = {cell_of(path).env for path in found} & {*names("envs")}
    envs = [env for env in first if env in seen] + sorted(seen - {*first})
    return [env for env in envs if plan.has_tier(env, tier)] or None


def _variants_elsewhere(
    method: str, tier: str, envs: Collection[str], folders: Iterable[Path]
) -> dict[str, list[str]]:
    """Variants of ``method`` (``method@...``) in ``folders``, with their environments that ``envs`` lacks."""
    from r3l.runs.run_paths import cell_of, find_runs

    found: dict[str, set[str]] = {}
    for cell in {cell_of(path) for folder in folders for path in find_runs(folder, may_be_none=True)}:
        if cell.tier == tier and cell.env not in envs and cell.method.startswith(f"{method}@"):
            found.setdefault(cell.method, set()).add(cell.env)
    return {variant: sorted(found[variant]) for variant in sorted(found)}


def _refuse_other_checkpoints(
    method: str, folders: Iterable[Path], tier: str, envs: Collection[str], cells: Collection[str]
) -> None:
    """Raise ConfigError if all runs of ``method`` in ``folders`` start from other checkpoints than ``cells``.

    A cell is a folder ``tier/env/model/method``; does nothing if there is no run.
    """
    from r3l.runs.run_paths import cell_of, runs_of

    found = [path for folder in folders for path in runs_of(folder, [method], tier, envs, may_be_none=True)]
    elsewhere = sorted({cell_of(path).model for path in found})
    if found and not any("/".join(cell_of(path)) in cells for path in found):
        raise ConfigError(
            f"{method} has no run from the base checkpoint that is compared; those of "
            f"{found[0].parents[5]} start from {', '.join(elsewhere)}: add --model {elsewhere[0]}"
        )


def offline_command(method: str, tier: str, envs: Iterable[str]) -> str:
    """The text of the command that compares finished runs of ``method`` in ``envs`` with stored baselines."""
    where = "" if tier == "nano" else f" --tier {tier}"
    return f"r3l compare {method} --env {','.join(sorted(set(envs)))}{where} --offline"


def own_runs(folders: list[Path], cells: list[str], seeds: list[int] | None) -> list[Path]:
    """The evaluation.json of each evaluated run of ``cells`` and ``seeds`` under ``folders``; [] if none.

    A cell is a folder ``tier/env/model/method``. ``seeds`` None: all.
    """
    from r3l.runs.run_paths import cell_of, find_runs

    names = None if seeds is None else {f"seed{seed}" for seed in seeds}
    found = [path for folder in folders for path in find_runs(folder, may_be_none=True)]
    own = [path for path in found if "/".join(cell_of(path)) in cells]
    return [path for path in own if names is None or path.parent.name in names]


def opponents_of(method: str, against: str, tier: str) -> list[str]:
    """The methods to compare ``method`` with: the comma-separated ``against``, or for ``all`` Table 1's.

    ``method`` itself is left out. The names are not looked up. Raises ConfigError if none is left, or for an
    empty or repeated name.
    """
    from r3l.workflow import plan

    if against == "all":
        named = configured(tier, grid="full").rows(plan.tables()["table1"])
    else:
        named = listed(against, "--against") or []
    others = [other for other in named if other != method]
    if not others:
        raise ConfigError(f"--against is {against!r}; name a method other than {method!r}, or all")
    return others


def _check_share(option: str, value: float, low: float, high: float) -> None:
    """Raise ConfigError for a value out of range, or NaN."""
    if not low <= value <= high:
        raise ConfigError(f"{option} is {value:g}; it must be a number from {low:g} to {high:g}")
