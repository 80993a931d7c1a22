"""The page of all commands, by Typer's own generator; made when the site of docs/ is built."""

from __future__ import annotations

from typing import Any

from typer import Context
from typer.cli import get_docs_for_click
from typer.main import get_command

from r3l.cli import app

HEAD = """# The command line

Every command of `r3l`, as `r3l COMMAND --help` shows it. Bad input is
one paragraph on stderr and exit code 2; a run that is stopped exits with 75: re-run to resume.

"""


def page() -> str:
    """The page as Markdown."""
    program = get_command(app)
    _prepare(program)
    body = get_docs_for_click(obj=program, ctx=Context(program), name="r3l")
    return HEAD + body.split("\n", 2)[2].strip() + "\n"


def _prepare(command: Any) -> None:
    """Whole first sentences in lists of commands, which else are cut after 45 characters; no ``--help`` everywhere."""
    command.short_help = " ".join((command.help or "").split("\n\n")[0].split())
    command.add_help_option = False
    for part in getattr(command, "commands", {}).values():
        _prepare(part)
