"""Texts of the paper's released code, read from the user's clone of it; each file must be the released one.

No part of that code is copied into this project, and nothing of it is imported or executed: strings come from
the syntax trees of its Python files, and templates are rendered in jinja2's sandbox. An environment variable
names the folder of the clone.
"""

from __future__ import annotations

import ast
import hashlib
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jinja2 import StrictUndefined
from jinja2.sandbox import SandboxedEnvironment

from r3l.core.errors import ConfigError
from r3l.core.named_folders import named_folder

VARIABLE = "R3L_RELEASE"  # environment variable: folder of the user's clone
URL = "https://github.com/shiweijiezero/R3L"
COMMITS = ("d503f6c", "633c9ae87c92c3d3acc4")  # that docs/audit.md read; users check out the first one

# Folder of the environments in the clone.
FOLDER = "trinity/common/workflows/envs/R3L"

# sha256 of prompt templates by path, computed from a public index's copy of the texts; for all other files
# the commit of the clone is the proof. Reflection and guidance templates are the same in all environments.
_OF_ONE_ENVIRONMENT = {
    "alfworld/prompts/alfworld_system.j2": "d3c9a654ff03b6077fef70f5cee780b84944e07097d54712146c60301b529afc",
    "alfworld/prompts/critique.j2": "04a6997b6ac53712880abce8ebcee39d3ff51f7e22c0ac240f13ac4b266c3bdc",
    "dapo/prompts/critique.j2": "259b421827e7493b54c4151f5a1efd9eea651b7e1813b2f82fcc661e9ab244e3",
    "dapo/prompts/math_system.j2": "03dbf26bff6be3c5965c6c72ee9b63da816ef0947b2d36efa1aaea6ac7ece749",
    "scienceworld/prompts/sciworld_system.j2": (
        "846bb240e66be8cf479c4efd7e3e18c6e2bc824f509d77eb4ba1684e80ea0c50"
    ),
    "webshop/prompts/webshop_system.j2": "7a46534e97a21caf209ccbdef70fc13c9fc202d82f73dc4b51edb091b9e206cd",
}
_OF_ALL_ENVIRONMENTS = {
    "reflection.j2": "f56fbea6cc261986e055a70693b587d39153bb09a3f77a927b1486a1e12c1923",
    "self_correction.j2": "3eb2a915cc41e3e6e2088dfc1e46be172d8832eac6ea64b1b685b47dad7ebeea",
}

DIGESTS = {f"{FOLDER}/{path}": digest for path, digest in _OF_ONE_ENVIRONMENT.items()} | {
    f"{FOLDER}/{environment}/prompts/{name}": digest
    for environment in ("alfworld", "dapo", "scienceworld", "webshop")
    for name, digest in _OF_ALL_ENVIRONMENTS.items()
}

Part = tuple[bool, str]  # whether the part is an expression, and its source text


@dataclass(frozen=True)
class Text:
    """A string literal or f-string in a Python file, as its parts: (is an expression, text).

    The text of an expression is its source. ``used``: the variable to which the string is assigned, "return"
    if it is returned, else empty.
    """

    parts: tuple[Part, ...]
    used: str = ""

    @property
    def fields(self) -> frozenset[str]:
        """The source texts of the expressions in the string, such as ``step_counter``."""
        return frozenset(part for is_field, part in self.parts if is_field)

    def fill(self, values: Mapping[str, object]) -> str:
        """The string with each expression replaced by ``values[its source text]``; nothing is evaluated.

        Raises KeyError if one is missing.
        """
        return "".join(str(values[part]) if is_field else part for is_field, part in self.parts)


def render(path: str, **values: object) -> str:
    """The text of the jinja template ``path`` of the released code, rendered with ``values`` and its options.

    Raises ConfigError if there is no clone, or if the file is not the released one, and jinja2's
    UndefinedError for a variable of the template that ``values`` lack.
    """
    environment = SandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    return environment.from_string(read(path)).render(values)


def texts(path: str, function: str, *fields: str, used: str | None = None) -> tuple[Text, ...]:
    """Strings in ``function`` of the Python file ``path`` of the released code, in order of appearance.

    Only strings count whose f-string expressions are exactly ``fields`` (source texts, in any order) and, if
    ``used`` is given, whose attribute ``used`` (:class:`Text`) is equal to it. Raises ConfigError if there is
    no such string or no clone, or if the file is not the released one.
    """
    strings = [text for text in _strings(path, function) if used in (None, text.used)]
    found = tuple(text for text in strings if text.fields == frozenset(fields))
    if not found:
        wanted = ", ".join(fields) or "no expression"
        raise ConfigError(f"{path} of the release: {function} has no text with {wanted}")
    return found


def how_to_clone() -> str:
    """The shell commands that clone the released code and set $R3L_RELEASE, for messages; runs nothing."""
    name = Path(URL).stem
    return f"git clone {URL} && git -C {name} checkout {COMMITS[0]} && export {VARIABLE}=$PWD/{name}"


@cache
def read(path: str) -> str:
    """The text of the file ``path`` in the user's clone of the released code ($R3L_RELEASE); cached.

    Raises ConfigError if there is no clone or no such file, or if the file is from no audited commit:
    by its SHA-256 (DIGESTS) or by git.
    """
    # The file in the user's clone.
    folder = named_folder(VARIABLE)
    if folder is None:
        raise ConfigError(f"this needs a clone of the R3L release: {how_to_clone()}")
    file = folder / path
    if not file.is_file():
        raise ConfigError(f"{VARIABLE} is {folder}, which has no {path}; clone the release: {how_to_clone()}")

    # Released: a template whose sha256 is known, or a file that git has in one of the audited commits.
    content = file.read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    pinned = DIGESTS.get(path)
    if sha256 != pinned:
        blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        git = ("git", "-C", str(folder), "rev-parse", "--verify", "--quiet")
        found = [
            subprocess.run([*git, f"{commit}:{path}"], capture_output=True, text=True) for commit in COMMITS
        ]
        if blob not in [ran.stdout.strip() for ran in found if not ran.returncode]:
            expected = f"pinned is {pinned[:12]}" if pinned else "none is pinned"
            commits = " or ".join(commit[:7] for commit in COMMITS)
            raise ConfigError(
                f"{file} is not the release's: its sha256 is {sha256[:12]}, {expected}, and it is not the "
                f"file of commit {commits} in a git clone; clone it again: {how_to_clone()}"
            )
    return content.decode("utf-8")


@cache
def _strings(path: str, function: str) -> tuple[Text, ...]:
    """All strings in one function of a Python file of the released code."""
    for node in ast.walk(ast.parse(read(path), path)):
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return tuple(_within(node))
    raise ConfigError(f"{path} of the release has no function {function}")


def _within(node: ast.AST, used: str = "") -> Iterator[Text]:
    """The longest strings below a node, in order; arguments of ``print`` are skipped."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
        return
    parts = _parts(node) if isinstance(node, ast.expr) else None
    if parts is not None and any(not is_field for is_field, _ in parts):
        yield Text(tuple(parts), used)
        return
    if isinstance(node, ast.Return):
        used = "return"
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        used = node.targets[0].id
    for child in ast.iter_child_nodes(node):
        yield from _within(child, used)


def _parts(node: ast.expr) -> list[Part] | None:
    """The parts of a literal, an f-string, or a sum or repetition of these; None for any other expression."""
    match node:
        case ast.Constant(value=str(text)):
            return [(False, text)]
        case ast.JoinedStr(values=values):
            return [part for value in values for part in _parts(value) or []]
        case ast.FormattedValue(value=value):
            return [(True, ast.unparse(value))]
        case ast.BinOp(ast.Constant(str(text)), ast.Mult(), ast.Constant(int(times))):  # a repetition
            return [(False, text * times)]
        case ast.BinOp(left, ast.Add(), right):
            sides = [_parts(side) or [(True, ast.unparse(side))] for side in (left, right)]
            return [part for side in sides for part in side]
    return None
