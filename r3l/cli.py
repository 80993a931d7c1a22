"""The command line: one Typer app, thin verbs. Bad input is one paragraph on stderr and exit code 2.

Every verb imports what it needs when it runs, so ``r3l --help`` needs neither torch nor an engine.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from r3l.core.errors import ConfigError, DataError, R3LError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from r3l.config import Run

app = typer.Typer(
    help="Benchmark and reproduction of R3L: reflect-then-retry reinforcement learning.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
panel_app = typer.Typer(help="The committed task lists that results are measured on.", no_args_is_help=True)
bench_app = typer.Typer(help="Measure the parts: environment engines, rollouts.", no_args_is_help=True)
catalogue_app = typer.Typer(help="The shop's products on disk, shared by all workers (WebShop).", no_args_is_help=True)
app.add_typer(panel_app, name="panel")
app.add_typer(catalogue_app, name="catalogue")
app.add_typer(bench_app, name="bench")

RESULTS = Path("results")

Tier = Annotated[str, typer.Option(help="Scale: a file of configs/tiers/.")]
Env = Annotated[str, typer.Option(help="Environment: a file of configs/envs/.")]
Method = Annotated[str, typer.Option(help="A file of configs/methods/, or a variant: r3l@alpha=5,retries=2.")]
Model = Annotated[str | None, typer.Option(help="Stored model, folder, or hub id. Default: the tier's.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of every draw of the run.")]
Overrides = Annotated[list[str] | None, typer.Option("--set", help="KEY=VALUE, repeatable: train.lr=1e-4.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]
Results = Annotated[Path, typer.Option(help="Where runs lie: RESULTS/tier/env/model/method/seedN.")]


def main() -> None:
    """Entry point: typed errors become one paragraph and exit code 2; anything else is a traceback and 1."""
    try:
        app()
    except R3LError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


@app.command()
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
    set_aside: Annotated[bool, typer.Option(help="Rename a directory of another configuration.")] = False,
    as_json: AsJson = False,
) -> None:
    """Train one run; run the same command again to resume.

    Example: `r3l train --method grpo --seed 1 --set train.lr=1e-4`
    """
    from r3l import workflow
    from r3l.local.engine import train as train_run

    if profile:
        method += f"{',' if '@' in method else '@'}profile={profile}"
    run = _resolve(tier, env, method, seed, model, overrides, steps)
    where = run_dir or RESULTS / run.cell / f"seed{seed}"
    if set_aside:
        workflow.set_aside(where, run.fingerprint())
    result = train_run(run, where)
    line = f"{run.cell} seed {seed}: {result['steps']} steps, {_pairs(result['final'])}; in {where}"
    _print(result, as_json, line)


@app.command()
def evaluate(
    run_dir: Annotated[Path | None, typer.Argument(help="Directory of a finished training run.")] = None,
    panel: Annotated[str | None, typer.Option(help="Another panel than the run's test panel.")] = None,
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
    out: Annotated[Path | None, typer.Option(help="Default: results/evaluations/ENV/MODEL/PROTOCOL/seedN.")] = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate a run on its test panel (last checkpoint, no reflection, no guidance), or a model on question sets.

    The same command goes on where it was stopped.

    Example: `r3l evaluate results/nano/alfworld/nano/r3l/seed0`

    Example: `r3l evaluate --set gsm8k,math500 --server http://localhost:8000 --model Qwen/Qwen2.5-1.5B-Instruct`
    """
    if run_dir is not None and sets is None:
        _evaluate_run(run_dir, panel, as_json)
        return
    if run_dir is not None or sets is None or (model is None and server is None):
        raise ConfigError(
            "give either the directory of a run (r3l evaluate RUN_DIR), or question sets and what answers them "
            "(r3l evaluate --set gsm8k --model PATH, or --set gsm8k --server URL --model NAME)"
        )
    from r3l.evaluation import exam as exams

    module = _question_sets(env)
    options = {"protocol": protocol, "prompt": prompt, "oracle": oracle, "data": data}
    with module.open_exam(**options) as exam, contextlib.ExitStack() as stack:
        names = sets.split(",")
        for name in names:
            exam.questions(name)  # a wrong name is an error now, not after the model has loaded
        warmth = module.TEMPERATURES[protocol] if temperature is None else temperature
        length = max_tokens or module.MAX_TOKENS
        if server:
            from r3l.evaluation.servers import Server

            answering: exams.Model = stack.enter_context(Server(server, model, warmth, length, batch))
        else:
            from r3l.evaluation.local_model import LocalModel

            answering = LocalModel(str(model), warmth, length, batch)
        where = out or RESULTS / "evaluations" / env / answering.name.replace("/", "--") / protocol / f"seed{seed}"
        found = exams.evaluate_sets(exam, answering, names, where, seed, limit)
    if as_json:
        print(json.dumps(found, sort_keys=True))
    else:
        _console().print(exams.render(found))
        print(f"every reply and mark: {where / 'items.jsonl'}")


def _evaluate_run(run_dir: Path, panel: str | None, as_json: bool) -> None:
    from r3l.evaluation.evaluate import evaluate_run

    if not run_dir.is_dir():  # asked here because evaluating locks, and so creates, the directory
        raise DataError(f"run directory {run_dir} does not exist; train first, or correct the path")
    evaluation = evaluate_run(run_dir, panel=panel)
    scores = {group: values["success"] for group, values in evaluation["groups"].items()}
    _print(evaluation, as_json, f"{evaluation['cell']} seed {evaluation['seed']}: success {_pairs(scores)}")


@app.command()
def table(
    name: Annotated[str, typer.Argument(help="A file of configs/tables/, or budget.")],
    evaluations: Annotated[list[Path] | None, typer.Argument(help="evaluation.json files.")] = None,
    results: Results = RESULTS,
    out: Annotated[Path | None, typer.Option(help="Also write the table as CSV.")] = None,
    rows: Annotated[str | None, typer.Option(help="Methods of the rows, by commas. Default: the table's.")] = None,
    seeds_planned: Annotated[int | None, typer.Option(help="Default: configs/workflow.yaml.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make a table from result files, offline; missing methods and seeds are shown as missing.

    Example: `r3l table table1 --out results/table1.csv`
    """
    from r3l import workflow
    from r3l.report import budget, records, tables

    known = workflow.tables()
    _known("table", name, {*known, "budget"})
    found = records.load(evaluations or records.find(results))
    if name == "budget":
        made = budget.table(found)
        shown: RenderableType = budget.render(made)
    else:
        config = workflow.load()
        if not evaluations:  # of all that lies there, what belongs into this table
            found = [record for record in found if record["env"] in config.columns(known[name])]
        if not found:
            raise DataError(f"no run under {results} belongs to {name} ({', '.join(config.columns(known[name]))})")
        run = {record["method"] for record in found}
        wanted = [m for m in known[name].methods if m in run or m in config.rows(known[name])]
        methods = rows.split(",") if rows else wanted
        planned = len(config.seeds) if seeds_planned is None else seeds_planned
        made = tables.scores_table(found, methods, known[name].baseline, planned, known[name].title)
        shown = tables.render(made)
    if out:
        tables.write_csv(made, out)
    if as_json:
        print(json.dumps({"rows": made}))
    else:
        _console().print(shown)


@app.command()
def figure(
    name: Annotated[str, typer.Argument(help="training_curves, or a table, whose scores are drawn.")],
    evaluations: Annotated[list[Path] | None, typer.Argument(help="evaluation.json files.")] = None,
    results: Results = RESULTS,
    out: Annotated[Path, typer.Option(help="Folder of NAME.pdf and NAME.png.")] = RESULTS / "figures",
    as_json: AsJson = False,
) -> None:
    """Draw a figure from result files, offline, as PDF and PNG: training curves, or the scores of a table's methods.

    Example: `r3l figure training_curves --out results/figures`
    """
    from r3l import workflow
    from r3l.report import figures, records

    known = workflow.tables()
    _known("figure", name, {*known, "training_curves"})
    found = records.load(evaluations or records.find(results))
    if name == "training_curves":
        written = figures.training_curves(found, out)
    else:
        written = figures.scores(found, out, known[name].methods, name)
    paths = [str(path) for path in written]
    _print({"figure": name, "files": paths}, as_json, "\n".join(paths))


@app.command()
def methods(tier: Tier = "nano", as_json: AsJson = False) -> None:
    """The table of methods and switches, made from the configs: a column a profile.

    Example: `r3l methods --json`
    """
    from r3l.report import switches

    rows = switches.methods(tier)
    if as_json:
        print(json.dumps({"methods": rows}))
    else:
        _console().print(switches.render_methods(rows))


@app.command("switches")
def list_switches(as_json: AsJson = False) -> None:
    """Every switch in one line: values, meaning, audit id, and the methods that have it.

    Example: `r3l switches`
    """
    from r3l.report import switches

    _print_rows({"switches": switches.switches()}, as_json)


@app.command()
def envs(as_json: AsJson = False) -> None:
    """List the environments with their tiers and panels.

    Example: `r3l envs`
    """
    from r3l.config import EnvConfig, load, names

    rows = [
        {"env": e.env, "label": e.label, "tier": tier, **settings.model_dump()}
        for e in (load("envs", name, EnvConfig) for name in names("envs"))
        for tier, settings in e.tiers.items()
    ]
    _print_rows({"envs": rows}, as_json)


@app.command()
def doctor(tier: Tier = "nano", as_json: AsJson = False) -> None:
    """Check that this machine can run a tier; exit code 2 if something fails.

    Example: `r3l doctor --tier nano`
    """
    from r3l import doctor as checks

    found = checks.examine(tier)
    if as_json:
        print(json.dumps({"tier": tier, "ok": all(c.ok for c in found), "checks": [vars(c) for c in found]}))
    else:
        _console().print(checks.render(found))
    if not all(check.ok for check in found):
        raise typer.Exit(2)


@app.command()
def warmstart(
    name: Annotated[str, typer.Argument(help="A file of configs/warmstart/.")] = "nano",
    out: Annotated[Path | None, typer.Option(help="Default: results/stored/models/NAME.")] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes that play demonstrations.")] = 2,
    as_json: AsJson = False,
) -> None:
    """Build a start model by supervised steps (about an hour on 2 cores). Never overwrites one.

    A build that was cut off goes on after its last whole phase.

    Example: `r3l warmstart nano --out results/models/nano`
    """
    from r3l.config import STORED_MODELS
    from r3l.local.warmstart import build

    target = out or STORED_MODELS / name
    manifest = build(name, target, workers=workers)
    _print(manifest, as_json, f"{manifest['parameters']} parameters in {target}")


@panel_app.command("check")
def panel_check(
    tier: Tier = "nano",
    env: Env = "alfworld",
    out: Annotated[Path | None, typer.Option(help="Write the description here as JSON.")] = None,
    as_json: AsJson = False,
) -> None:
    """Regenerate or read an environment's panels, compare their hashes, check that train and test are apart.

    Example: `r3l panel check --env alfworld`
    """
    from r3l import workflow
    from r3l.tracking import write_json_atomic

    description = workflow.check_panels(tier, env)
    if out:
        with workflow.writable(out):
            write_json_atomic(out, description)
    lines = [f"{p['name']}: {p['tasks']} tasks, sha256 {p['sha256']}" for p in description["panels"].values()]
    _print(description, as_json, "\n".join(lines))


@panel_app.command("build")
def panel_build(
    panel: Annotated[str, typer.Argument(help="Name of the panel, e.g. nano.")] = "nano",
    env: Env = "alfworld",
    as_json: AsJson = False,
) -> None:
    """Prove every task of a panel solvable and write the file that is committed.

    Example: `r3l panel build nano --env alfworld`
    """
    path = _env_module(env, "proof").build(panel)
    _print({"env": env, "panel": panel, "file": str(path)}, as_json, str(path))


@catalogue_app.command("build")
def catalogue_build(
    items: Annotated[Path, typer.Option(help="items_shuffle.json or items_shuffle_1000.json.")],
    attrs: Annotated[Path, typer.Option(help="items_ins_v2.json or items_ins_v2_1000.json.")],
    out: Annotated[Path, typer.Option(help="The folder to make; then name it in R3L_WEBSHOP.")],
    human: Annotated[Path | None, typer.Option(help="items_human_ins.json; else goals are made from ATTRS.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first products.")] = None,
    as_json: AsJson = False,
) -> None:
    """Build WebShop's catalogue from the original's files, whole or not at all (all: some 15 minutes, 6 GB).

    The files, key by key: docs/webshop.md.

    Example: `r3l catalogue build --items items_shuffle.json --attrs items_ins_v2.json --out shop`
    """
    meta = _env_module("webshop", "build").make_original(items, attrs, human, out, limit)
    line = f"{out}: catalogue {meta.id}, {meta.products} products, {meta.goals} goals; next: export R3L_WEBSHOP={out}"
    _print({"folder": str(out), "id": meta.id, **vars(meta)}, as_json, line)


@bench_app.command("env")
def bench_env(
    env: Annotated[str, typer.Argument(help="Environment.")] = "alfworld",
    tier: Tier = "nano",
    tasks: Annotated[int | None, typer.Option(min=0, help="Tasks, spread over the test panel; 0: all.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Random steps of each task.")] = None,
    seed: Seed = 0,
    packed: Annotated[Path | None, typer.Option(help="Tasks of a packed file, not of the panel.")] = None,
    envs: Annotated[int | None, typer.Option(min=1, help="Environments that live together.")] = None,
    products: Annotated[int | None, typer.Option(min=1, help="Size of a catalogue to build and serve.")] = None,
    sessions: Annotated[int | None, typer.Option(min=1, help="Customers of that catalogue.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes that serve them.")] = None,
    folder: Annotated[Path | None, typer.Option(help="Where that catalogue is built, or lies already.")] = None,
    out: Annotated[Path | None, typer.Option(help="Also write the report here as JSON.")] = None,
    as_json: AsJson = False,
) -> None:
    """Speed, memory and identity of an engine, beside the original's own path where that can be run.

    Not every option belongs to every environment; one that does not is an error that lists those that do.

    Example: `r3l bench env scienceworld --envs 8 --out bench.json`
    """
    from r3l import workflow
    from r3l.tracking import write_json_atomic

    measure = _env_module(env, "bench").run
    own = {"tasks": tasks, "steps": steps, "packed": packed, "envs": envs, "products": products}
    own |= {"sessions": sessions, "workers": workers, "folder": folder}
    given = {name: value for name, value in own.items() if value is not None}
    _belong(env, given, inspect.signature(measure).parameters)
    report = measure(workflow.env_settings(tier, env).test_panel, seed=seed, **given)
    try:
        if out:
            with workflow.writable(out):
                write_json_atomic(out, report)
    finally:  # an hour's measurement is shown even where it cannot be kept
        _print_report(report, as_json)


@bench_app.command("rollout")
def bench_rollout(
    tier: Tier = "nano",
    env: Env = "alfworld",
    method: Method = "r3l",
    model: Model = None,
    seed: Seed = 0,
    overrides: Overrides = None,
    tasks: Annotated[int, typer.Option(min=1, help="Training tasks to explore.")] = 8,
    repeats: Annotated[int, typer.Option(min=1, help="Repetitions of each arm, taken in turn.")] = 3,
    as_json: AsJson = False,
) -> None:
    """The same episodes with and without kept and forked key-value caches: tokens encoded and seconds.

    Example: `r3l bench rollout --tasks 8 --repeats 3`
    """
    from r3l.local import bench

    run = _resolve(tier, env, method, seed, model, overrides, None)
    _print_report(bench.bench_rollout(run, tasks, repeats), as_json)


@bench_app.command("grader")
def bench_grader(
    workers: Annotated[int, typer.Option(min=1, help="Grading processes.")] = 2,
    count: Annotated[int, typer.Option(min=1, help="Hostile strings.")] = 1000,
    items: Annotated[int, typer.Option(min=2, max=500, help="Items of MATH-500.")] = 500,
    seed: Seed = 0,
    out: Annotated[Path | None, typer.Option(help="Also write the report here as JSON.")] = None,
    as_json: AsJson = False,
) -> None:
    """Speed of the grader of mathematics over MATH-500, and its worst case over hostile answers.

    Example: `r3l bench grader --out bench_grader.json`
    """
    from envs.math import grader_bench
    from r3l import workflow
    from r3l.tracking import write_json_atomic

    report = grader_bench.run(workers, count, items, seed)
    try:
        if out:
            with workflow.writable(out):
                write_json_atomic(out, report)
    finally:
        _print_report(report, as_json)


def _resolve(
    tier: str,
    env: str,
    method: str,
    seed: int,
    model: str | None,
    overrides: list[str] | None,
    steps: int | None,
) -> Run:
    from r3l.config import resolve

    short = [] if steps is None else [f"train.steps={steps}"]
    return resolve(tier, env, method, seed, model, [*(overrides or []), *short])


def _env_module(env: str, name: str) -> Any:
    """The module ``name`` of an environment's package, for what only some environments have."""
    from r3l.config import EnvConfig, load
    from r3l.core.pool import find_package

    load("envs", env, EnvConfig)
    package = f"envs.{find_package(env).name}"
    try:
        return importlib.import_module(f"{package}.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"{package}.{name}":
            raise
        raise ConfigError(f"environment {env!r} has no {name} ({package.replace('.', '/')}/{name}.py)") from error


def _question_sets(env: str) -> Any:
    """``envs.<env>.exam``, of the environments that have question sets."""
    try:
        return importlib.import_module(f"envs.{env}.exam")
    except ModuleNotFoundError as error:
        if error.name not in (f"envs.{env}", f"envs.{env}.exam"):
            raise
        raise ConfigError(f"environment {env!r} has no question sets; math has") from error


def _belong(env: str, given: Mapping[str, Any], parameters: Mapping[str, inspect.Parameter]) -> None:
    """Raises ConfigError for an option that is not among the keywords of an environment's function."""
    known = [name for name, parameter in parameters.items() if parameter.kind is parameter.KEYWORD_ONLY]
    for name in given:
        if name not in known:
            raise ConfigError(
                f"r3l bench env {env} has no option --{name}; it has --{', --'.join(known)}. Remove --{name}"
            )


def _known(kind: str, name: str, known: Any) -> None:
    if name not in known:
        raise ConfigError(f"there is no {kind} {name!r}; known: {', '.join(sorted(known))}")


def _pairs(values: dict[str, float]) -> str:
    return ", ".join(f"{key} {value:.3f}" for key, value in values.items()) or "nothing trained"


def _print(content: dict[str, Any], as_json: bool, text: str) -> None:
    print(json.dumps(content, sort_keys=True) if as_json else text)


def _print_report(content: dict[str, Any], as_json: bool) -> None:
    print(json.dumps(content, indent=None if as_json else 2))


def _print_rows(content: dict[str, list[dict[str, Any]]], as_json: bool) -> None:
    if as_json:
        print(json.dumps(content))
        return
    (rows,) = content.values()
    shown = Table()
    for column in rows[0]:
        shown.add_column(column)
    for row in rows:
        shown.add_row(*(_text(value) for value in row.values()))
    _console().print(shown)


def _console() -> Console:
    """As wide as the terminal; wide enough for every table where there is none."""
    return Console() if Console().is_terminal else Console(width=150)


def _text(value: Any) -> str:
    return "\n".join(f"{k}: {v}" for k, v in value.items()) if isinstance(value, dict) else str(value)


if __name__ == "__main__":
    main()
