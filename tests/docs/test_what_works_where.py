"""docs/what_works_where.md: every row has a command and a test, and both exist; what does not work says why."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from docs.pages import DOCS, text
from docs.test_commands import check

PAGE = DOCS / "what_works_where.md"
OTHER_COMMANDS = (
    "make ",
    "snakemake ",
    "lm_eval ",
    "pip ",
    ".venv/bin/python -m pytest ",
)  # the first two are checked by docs.test_commands


class Row(NamedTuple):
    feature: str
    source: str
    state: str  # works, partly or no; what is missing after a colon
    commands: str
    tests: str


ROWS = [
    Row(*cells)
    for line in text(PAGE).splitlines()
    if len(cells := [cell.strip() for cell in line.strip("|").split("|")]) == 5 and cells[0] not in ("feature", "---")
]


@cache
def functions(file: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.FunctionDef)}


def test_the_features_of_the_sources_are_there():
    assert len(ROWS) > 50 and len({row.feature for row in ROWS}) == len(ROWS)
    assert {name for row in ROWS for name in row.source.split(", ")} >= {"R3L", "RLTF", "Trinity"}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.feature)
def test_every_row_has_a_state_a_command_and_a_test_that_exist(row):
    state, _, note = row.state.partition(": ")
    assert state in ("works", "partly", "no") and (note or state == "works"), "what is missing?"
    commands = re.findall(r"`([^`]+)`", row.commands)
    tests = re.findall(r"\[(\w+)\]\(([^)]+)\)", row.tests)
    assert bool(commands) == bool(tests) == (state != "no")
    for command in commands:
        name, _, arguments = re.sub(r"^R3L_\w+=\S+ ", "", command).partition(" ")
        assert name == "r3l" or command.startswith(OTHER_COMMANDS)
        assert name != "r3l" or check(arguments) == []
    for name, path in tests:
        assert name in functions((DOCS / path).resolve()), f"{path} has no {name}"
