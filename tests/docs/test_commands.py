"""Every `r3l` command on the pages exists, with the options it is shown with."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from docs.pages import TODAY, blocks, inline_code
from typer.main import get_command

from r3l import cli
from r3l.cli import figure, table
from r3l.config import resolve
from r3l.files.paths import ROOT
from r3l.report.figures import FIGURES
from r3l.workflow import plan

APP = get_command(cli.app)
TABLES = {*plan.tables(), *table.SUBCOMMANDS}

_COMMAND = re.compile(r"(?:^|[\s(/])r3l (?=[a-z])(.*)")
_END = re.compile(r"\s#|&&|;|\)$|\s\d?>")


def commands(page: Path) -> Iterator[str]:
    """What follows `r3l ` in its code blocks and inline code, up to a comment; columns of a block are
    apart."""
    lines = [line for block in blocks(page) for line in block.replace("\\\n", " ").splitlines()]
    cells = [cell for line in lines for cell in re.split(r"\s{2,}(?=r3l |#)", line)]
    for code in [*cells, *inline_code(page)]:
        if (match := _COMMAND.search(code)) and not code.startswith("#"):
            yield re.split(r"\s{2,}", _END.split(match[1])[0])[0]


def words(command: str) -> list[str]:
    """Its words without brackets of optional parts; alternatives (`a|b`, `a | b`) joined by a bar."""
    return shlex.split(
        re.sub(r"\s*\|\s*", "|", command.replace("[-", " -").replace("]", " ").replace("...", ""))
    )


def check(command: str) -> list[str]:
    """What is wrong with a command: unknown verbs, unknown options."""
    verbs = [APP]
    wrong: list[str] = []
    arguments = words(command)
    while (
        arguments and not arguments[0].strip("[").isupper() and (known := getattr(verbs[0], "commands", None))
    ):
        if isinstance(verbs[0], cli.Verb) and arguments[0] not in known:
            break  # an argument or an option of the command itself
        names = arguments.pop(0).split("|")
        wrong += [f"there is no verb {name!r}" for name in names if name not in known]
        verbs = [known[name] for name in names if name in known]
        if not verbs:
            return wrong
    arguments = arguments[: arguments.index("--")] if "--" in arguments else arguments
    options = {option for verb in verbs for parameter in verb.params for option in parameter.opts} | {
        "--help"
    }
    wrong += [f"no option {a}" for a in arguments if a.startswith("--") and a.split("=")[0] not in options]
    return wrong + [f"there is no {verbs[0].name} {name!r}" for name in _names(verbs[0].name, arguments)]


def _names(verb: str | None, arguments: list[str]) -> list[str]:
    known = {"table": TABLES, "figure": {*FIGURES, *figure.SUBCOMMANDS}}.get(verb or "")
    if known is None or not arguments or arguments[0].isupper() or arguments[0].startswith("-"):
        return []
    return [name for name in arguments[0].split("|") if name not in known]


@pytest.mark.parametrize("page", TODAY, ids=lambda page: page.name)
def test_commands_exist(page):
    wrong = {command: check(command) for command in commands(page)}
    assert {command: what for command, what in wrong.items() if what} == {}


@pytest.mark.parametrize("page", TODAY, ids=lambda page: page.name)
def test_runs_of_the_pages_resolve(page, monkeypatch):
    """Tiers, environments, methods, variants and overrides of training commands are real ones."""
    monkeypatch.setenv("R3L_ENVS", str(ROOT / "examples"))
    for command in commands(page):
        verb, *arguments = words(command)
        if verb == "train" and not re.search(r"[A-Z]{3}|shortest|coach", command):
            pairs = list(zip(arguments, arguments[1:], strict=False))
            given = {"--tier": "nano", "--env": "alfworld", "--method": "r3l"} | {
                k: v for k, v in pairs if k != "--set"
            }
            overrides = [value for key, value in pairs if key == "--set"]
            resolve(given["--tier"], given["--env"], given["--method"], 0, None, overrides)


@pytest.mark.parametrize("page", TODAY, ids=lambda page: page.name)
def test_make_targets_and_extras_exist(page):
    code = "\n".join([*blocks(page), *inline_code(page)])
    targets = set(re.findall(r"^([a-z0-9]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:^|`|&& )make ([a-z0-9]+)", code, re.MULTILINE)) <= targets
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(re.findall(r"'\.\[(\w+)\]'", code)) <= set(extras)
