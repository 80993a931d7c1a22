"""The command line: one Typer app, thin verbs. Bad input is one paragraph on stderr and exit code 2.

Every verb imports what it needs when it runs, so ``r3l --help`` needs neither torch nor an engine.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Mapping
from typing import Annotated

import typer

import r3l
from r3l.cli import (
    bench,
    build,
    cell,
    compare,
    cost,
    demo,
    doctor,
    evaluate,
    listing,
    new,
    power,
    probe,
    published,
    registered,
    report,
    reproduced,
    run,
    status,
    store,
    stored,
    table,
    train,
    trinity_config,
    tune,
)
from r3l.cli.arguments import check_arguments
from r3l.core.errors import R3LError
from r3l.processes.parent import end_with_workflow
from r3l.runs.preemption import Preempted

# New objects before Python looks for garbage, where its own is 700: importing torch made it look 500 times, through
# all modules again and again, for a tenth of a start.
GARBAGE = 10_000

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
task_set_app = typer.Typer(help="The committed task lists that results are measured on.", no_args_is_help=True)
bench_app = typer.Typer(help="Measure the parts: environments, sampling, training, a step.", no_args_is_help=True)
stored_app = typer.Typer(help="The stored runs of this project, which no wheel holds.", no_args_is_help=True)
model_app = typer.Typer(help="Language models that runs start from.", no_args_is_help=True)
catalogue_app = typer.Typer(help="The shop's products on disk, shared by all workers (WebShop).", no_args_is_help=True)
new_app = typer.Typer(help="Begin a method or an environment of your own.", no_args_is_help=True)

# As `r3l --help` groups them; within a group, those that have verbs of their own come last.
VERBS: Mapping[str, Mapping[str, Callable[..., None] | typer.Typer]] = {
    "Begin": {"demo": demo.demo, "doctor": doctor.doctor, "new": new_app},
    "Train and evaluate": {
        "train": train.train,
        "evaluate": evaluate.evaluate,
        "run": run.run,
        "cell": cell.cell,
        "status": status.status,
        "tune": tune.tune,
        "preflight": train.preflight,
        "export": train.export,
    },
    "Compare and show": {
        "compare": compare.compare,
        "table": table.table,
        "figure": table.figure,
        "report": report.report,
        "power": power.power,
        "registered": registered.registered,
    },
    "Check what is claimed": {
        "published": published.published,
        "reproduced": reproduced.reproduced,
        "verify": store.verify,
        "store": store.store,
        "stored": stored_app,
    },
    "Look up": {"methods": listing.methods, "envs": listing.envs, "options": listing.list_options},
    "Start models and tasks": {
        "sft": build.sft,
        "probe": probe.probe,
        "model": model_app,
        "task-set": task_set_app,
        "catalogue": catalogue_app,
    },
    "Speed and large machines": {
        "cost": cost.cost,
        "trinity-config": trinity_config.trinity_config,
        "bench": bench_app,
    },
}
for panel, verbs in VERBS.items():
    for name, verb in verbs.items():
        if isinstance(verb, typer.Typer):
            app.add_typer(verb, name=name, rich_help_panel=panel)
        else:
            app.command(name, rich_help_panel=panel)(verb)
new_app.command("method")(new.method)
new_app.command("env")(new.env)
model_app.command("fetch")(build.model_fetch)
task_set_app.command("check")(build.task_set_check)
task_set_app.command("build")(build.task_set_build)
catalogue_app.command("build")(build.catalogue_build)
stored_app.command("fetch")(stored.fetch)
stored_app.command("path")(stored.path)
bench_app.command("env")(bench.bench_env)
bench_app.command("train")(bench.bench_train)
bench_app.command("step")(bench.bench_step)


def _show_version(asked: bool) -> None:
    if asked:
        print(r3l.__version__)
        raise typer.Exit


@app.callback()
def program(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """Benchmark and reproduction of R3L: reflect-then-retry reinforcement learning."""


def main() -> None:
    """Entry point: typed errors, and files that the system refuses, become one paragraph and exit code 2; a stop
    signal 75; else a traceback and 1."""
    gc.set_threshold(GARBAGE)
    try:
        end_with_workflow()
        check_arguments(sys.argv[1:])
        app()
    except R3LError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        if error.filename is None:
            raise
        print(f"error: {error.filename} cannot be used: {error.strerror}", file=sys.stderr)
        sys.exit(2)
    except Preempted as preempted:
        print(f"stopped by {preempted.signal_name}; the same command goes on from here", file=sys.stderr)
        raise
