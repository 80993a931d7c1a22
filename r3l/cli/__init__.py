"""The command line: one Typer app, thin commands. Bad input is one paragraph on stderr and exit code 2.

Every command imports what it needs when it runs, so ``r3l --help`` needs neither torch nor an engine.
"""

from __future__ import annotations

import gc
import io
import logging
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import typer

import r3l
from r3l.cli import bench, build, compare, demo, doctor, evaluate, lists, new, probe, run, stored, table, train, tune
from r3l.cli.arguments import check_arguments
from r3l.cli.printing import flushed
from r3l.core.errors import R3LError
from r3l.core.text import printable
from r3l.processes.cores import watching_for_cores
from r3l.processes.parent import end_with_workflow
from r3l.runs.preemption import Preempted

# Allocations between two garbage collections; Python's default is 700. While torch is imported that meant 500
# collections over all modules, a tenth of the start-up time.
GARBAGE = 10_000
INTERRUPTED = 130  # typer's exit code after Ctrl-C, as a shell has it: 128 and the number of SIGINT

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def _group(meaning: str, commands: Mapping[str, Callable[..., None]]) -> typer.Typer:
    group = typer.Typer(help=meaning, no_args_is_help=True)
    for name, command in commands.items():
        group.command(name)(command)
    return group


# As `r3l --help` shows them.
COMMANDS: Mapping[str, Mapping[str, Callable[..., None] | typer.Typer]] = {
    "Begin": {
        "demo": demo.demo,
        "doctor": doctor.doctor,
        "list": lists.list_,
        "new": _group("Begin a method or an environment of your own.", {"method": new.method, "env": new.env}),
    },
    "Train and evaluate": {
        "train": train.train,
        "run": run.run,
        "evaluate": evaluate.evaluate,
        "tune": tune.tune,
        "probe": probe.probe,
    },
    "Compare and show": {
        "compare": compare.compare,
        "table": table.table,
        "figure": table.figure,
        "report": table.report,
    },
    "Check and keep": {
        "verify": stored.verify,
        "stored": _group(
            "Finished runs that are kept: this project's, or yours.", {"add": stored.add, "fetch": stored.fetch}
        ),
    },
    "Models, tasks, speed": {
        "sft": build.sft,
        "model": _group(
            "Fetch a base checkpoint, export a trained model.",
            {"fetch": build.model_fetch, "export": build.model_export},
        ),
        "data": _group(
            "Task sets, and WebShop's products.",
            {"check": build.data_check, "build": build.data_build, "catalogue": build.data_catalogue},
        ),
        "bench": _group(
            "Measure the speed of a training step.",
            {"step": bench.step, "train": bench.train},
        ),
    },
}
for panel, commands in COMMANDS.items():
    for name, command in commands.items():
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, rich_help_panel=panel)
        else:
            app.command(name, rich_help_panel=panel)(command)


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


class _Printable(logging.Formatter):
    """Messages without what moves a terminal: a warning may quote what a model or a server wrote."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def main() -> None:
    """Entry point. Typed errors and files that cannot be read end with one paragraph and exit code 2, a stop signal
    with 75, all else with a traceback and 1."""
    gc.set_threshold(GARBAGE)
    if logging.lastResort:
        logging.lastResort.setFormatter(_Printable())
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr: a terminal of ASCII gets \u2026
    try:
        end_with_workflow()
        check_arguments(sys.argv[1:])
        with watching_for_cores(), flushed():
            app()
    except R3LError as error:
        print(f"error: {printable(str(error))}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        if error.filename is None:
            raise
        at_home = Path(str(error.filename)).is_relative_to(os.environ.get("HOME") or "~")
        fix = "; set HOME to a folder that can be written" if at_home else ""  # alfworld makes one there when imported
        print(f"error: {printable(str(error.filename))} cannot be used: {error.strerror}{fix}", file=sys.stderr)
        sys.exit(2)
    except Preempted as preempted:
        print(f"stopped by {preempted.signal_name}; re-run to resume", file=sys.stderr)
        raise
    except SystemExit as ended:
        if ended.code == INTERRUPTED:
            print("stopped by Ctrl-C; re-run to resume", file=sys.stderr)
        raise
