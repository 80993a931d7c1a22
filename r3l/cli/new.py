"""`r3l new method`, `r3l new env`: scaffold a method or an environment."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from r3l.cli.arguments import AsJson
from r3l.cli.printing import print_result

Name = Annotated[str, typer.Argument(help="Name of its files, its config and its class.", show_default=False)]
Folder = Annotated[
    Path | None, typer.Option(help="Your folder. Default: the first of $R3L_METHODS or $R3L_ENVS, else mine.")
]


def method(
    name: Name,
    folder: Folder = None,
    parent: Annotated[
        str | None, typer.Option("--from", help="Copy this method. Default: a small example.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a working method with its config and its test, for you to change. No file is overwritten.

    Example: `r3l new method longest --folder ~/mine`

    Example: `r3l new method better --from grpo`
    """
    commands = (f"r3l train --env math --method {name} --set train.steps=3", f"r3l compare {name} --env math")
    _write("methods", name, folder, commands, as_json, parent)


def env(name: Name, folder: Folder = None, as_json: AsJson = False) -> None:
    """Write a working environment with its config and its test, for you to change. No file is overwritten.

    Environments of verifiers, gymnasium and OpenEnv need only a YAML file: docs/extending.md.

    Example: `r3l new env maze --folder ~/mine`
    """
    commands = (f"r3l sft {name}", f"r3l train --env {name} --method r3l --set train.steps=3")
    _write("envs", name, folder, commands, as_json)


def _write(
    kind: str,
    name: str,
    folder: Path | None,
    commands: tuple[str, ...],
    as_json: bool,
    parent: str | None = None,
) -> None:
    """Write the example of ``kind``, or method ``parent``, under ``name``; print commands that try it."""
    from r3l.config import own_folders
    from r3l.config.files import OWN
    from r3l.config.template import EXAMPLE, write_template

    files = write_template(kind, name, folder, parent)
    where = files[0].parent.absolute()
    setting = [] if where in own_folders(kind) else [f"export {OWN[kind]}={shlex.quote(str(where))}"]
    following = [*setting, f"python -m pytest {shlex.quote(str(files[-1]))}", *commands]
    copied = f"method {parent!r}" if parent else f"the example {EXAMPLE[kind]!r}"
    text = f"Wrote {', '.join(map(str, files))}: {copied} under your name. Next:\n\n  "
    content = {"files": [str(path) for path in files], "next": following}
    print_result(content, as_json, text + "\n  ".join(following))
