"""Texts of the paper's released code, read from the user's clone; each file must be the released one.

Nothing of it is imported or executed: strings come from the syntax trees of its Python files, and
templates are rendered in jinja2's sandbox.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jinja2 import StrictUndefined
from jinja2.sandbox import SandboxedEnvironment

from r3l.core.errors import ConfigError
from r3l.original.clones import R3L, blobs_of, folder_of
from r3l.original.digests import DIGESTS

Part = tuple[bool, str]  # whether the part is an expression, and its source text


@dataclass(frozen=True)
class Text:
    """A string literal or f-string in a Python file, as its parts: (is an expression, source text).

    ``used``: the variable to which it is assigned, "return" if it is returned, else empty.
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

    Raises ConfigError if there is no clone, or if the file is not the released one.
    """
    environment = SandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    return environment.from_string(read(path)).render(values)


def texts(path: str, function: str, *fields: str, used: str | None = None) -> tuple[Text, ...]:
    """Strings in ``function`` of the Python file ``path`` of the released code, in order of appearance.

    Only strings whose f-string expressions are exactly ``fields`` (source texts, in any order) and, if
    ``used`` is given, whose :attr:`Text.used` it is. Raises ConfigError if there is none, if there is no
    clone, or if the file is not the released one.
    """
    strings = [text for text in _strings(path, function) if used in (None, text.used)]
    found = tuple(text for text in strings if text.fields == frozenset(fields))
    if not found:
        wanted = ", ".join(fields) or "no expression"
        raise ConfigError(f"{path} of the release: {function} has no text with {wanted}")
    return found


@cache
def read(path: str) -> str:
    """The text of the file ``path`` in the user's clone of the released code ($R3L_RELEASE); cached.

    Raises ConfigError if there is no clone or no such file, or if the file is not that of an audited commit:
    by its SHA-256 (r3l.original.digests) or by git.
    """
    return _read(folder_of(R3L), path)


@cache
def _read(folder: Path, path: str) -> str:
    file = folder / path
    if not file.is_file():
        raise ConfigError(f"{R3L.variable} is {folder}, which has no {path}; clone the release: {R3L.how()}")
    content = file.read_bytes()
    # Released: a template whose sha256 is known, or a file that git has in one of the audited commits.
    sha256 = hashlib.sha256(content).hexdigest()
    pinned = DIGESTS.get(path)
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    if sha256 != pinned and blob not in blobs_of(R3L, folder, path):
        expected = f"pinned is {pinned[:12]}" if pinned else "none is pinned"
        commits = " or ".join(commit[:7] for commit in R3L.commits)
        raise ConfigError(
            f"{file} is not the release's: its sha256 is {sha256[:12]}, {expected}, and it is not the file "
            f"of commit {commits} in a git clone; clone it again: {R3L.how()}"
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
