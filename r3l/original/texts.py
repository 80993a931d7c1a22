"""Texts of the R3L release, read where the user has it: each file checked, its strings taken as data.

Nothing of the release is imported or executed: strings come from the syntax tree of its Python files, and templates are
rendered in jinja2's sandbox.
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

Part = tuple[bool, str]  # whether it is an expression, and its text


@dataclass(frozen=True)
class Text:
    """A string of a Python file: literal parts, and expressions as Python writes them.

    ``used``: the variable that it is assigned to, ``return`` where it is returned, else nothing.
    """

    parts: tuple[Part, ...]
    used: str = ""

    @property
    def fields(self) -> frozenset[str]:
        return frozenset(part for is_field, part in self.parts if is_field)

    def fill(self, values: Mapping[str, object]) -> str:
        return "".join(str(values[part]) if is_field else part for is_field, part in self.parts)


def render(path: str, **values: object) -> str:
    """A template with ``values``, set as the release renders it. Raises ConfigError as ``read`` does."""
    environment = SandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    return environment.from_string(read(path)).render(values)


def texts(path: str, function: str, *fields: str, used: str | None = None) -> tuple[Text, ...]:
    """The strings of a function that have exactly these expressions, in order, of one use or of any.

    Raises ConfigError where there is none.
    """
    strings = _strings(path, function)
    found = tuple(text for text in strings if text.fields == frozenset(fields) and used in (None, text.used))
    if not found:
        raise ConfigError(f"{path} of the release: {function} has no text with {', '.join(fields) or 'no expression'}")
    return found


@cache
def read(path: str) -> str:
    """A file of the clone that $R3L_RELEASE names.

    Raises ConfigError where there is no clone, no such file, or another text than the release's.
    """
    return _read(folder_of(R3L), path)


@cache
def _read(folder: Path, path: str) -> str:
    file = folder / path
    if not file.is_file():
        raise ConfigError(f"{R3L.variable} is {folder}, which has no {path}; clone the release: {R3L.how()}")
    content = file.read_bytes()
    pinned = DIGESTS.get(path)
    if hashlib.sha256(content).hexdigest() != pinned and _blob(content) not in blobs_of(R3L, folder, path):
        raise ConfigError(
            f"{file} is not the release's: its sha256 is {hashlib.sha256(content).hexdigest()[:12]}, "
            f"{'pinned is ' + pinned[:12] if pinned else 'none is pinned'}, and it is not the file of commit "
            f"{' or '.join(commit[:7] for commit in R3L.commits)} in a git clone; clone it again: {R3L.how()}"
        )
    return content.decode("utf-8")


def _blob(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@cache
def _strings(path: str, function: str) -> tuple[Text, ...]:
    for node in ast.walk(ast.parse(read(path), path)):
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return tuple(_within(node))
    raise ConfigError(f"{path} of the release has no function {function}")


def _within(node: ast.AST, used: str = "") -> Iterator[Text]:
    """The longest strings below a node, in order; those of calls of print are no texts."""
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
    """The parts of a literal, an f-string, or a sum or a repetition of such; None for any other expression."""
    match node:
        case ast.Constant(value=str(text)):
            return [(False, text)]
        case ast.JoinedStr(values=values):
            return [part for value in values for part in _parts(value) or []]
        case ast.FormattedValue(value=value):
            return [(True, ast.unparse(value))]
        case ast.BinOp(left=ast.Constant(value=str(text)), op=ast.Mult(), right=ast.Constant(value=int(times))):
            return [(False, text * times)]
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            sides = [_parts(side) or [(True, ast.unparse(side))] for side in (left, right)]
            return [part for side in sides for part in side]
    return None
