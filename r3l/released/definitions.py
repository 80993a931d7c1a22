"""Single definitions out of a Python file, without importing it."""

from __future__ import annotations
import __future__

import ast
import sys
from collections.abc import Iterable, Sequence

from r3l.core.errors import DataError
from r3l.released.check import Namespace

LIBRARIES = {
    "numpy",
    "torch",
    "math_verify",
    "latex2sympy2_extended",
    "sympy",
    "regex",
    "yaml",
}  # installed here as well
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def execute(source: str, path: str, names: Sequence[str], namespace: Namespace) -> None:
    """Run the definitions ``names`` of a file, and the harmless imports at its top, in ``namespace``.

    Raises DataError naming a definition that is not there.
    """
    top = ast.parse(source, path).body
    found = [node for node in top if isinstance(node, Definition | ast.Assign | ast.AnnAssign) and _named(node, names)]
    methods = [_method(top, path, name) for name in names if "." in name]
    known = {name for node in found for name in _names(node)}
    if lacking := [name for name in names if name not in known and "." not in name]:
        raise DataError(f"{path} of the clone defines no {', '.join(lacking)}; is it the commit that the audit read?")
    for node in ast.walk(ast.Module([*found, *methods], [])):
        if isinstance(node, Definition):
            node.decorator_list = [d for d in node.decorator_list if _plain(d)]
        if isinstance(node, ast.ClassDef):
            node.bases = [base for base in node.bases if isinstance(base, ast.Name) and base.id in {*known, *namespace}]
            node.keywords = []
    body = [*_imports(top), *found, *methods]
    flags = __future__.annotations.compiler_flag  # annotations stay text
    exec(compile(ast.Module(body, []), path, "exec", flags), namespace)


def _imports(top: Iterable[ast.stmt]) -> list[ast.stmt]:
    """Imports at the top of the file that need nothing of the release."""
    found: list[ast.stmt] = []
    for node in top:
        if isinstance(node, ast.Import):
            aliases = [alias for alias in node.names if _harmless(alias.name)]
            found += [ast.copy_location(ast.Import(aliases), node)] if aliases else []
        elif isinstance(node, ast.ImportFrom) and not node.level and _harmless(node.module or ""):
            found += [node] if node.module != "__future__" else []
    return found


def _harmless(module: str) -> bool:
    return module.partition(".")[0] in LIBRARIES | sys.stdlib_module_names


def _names(node: ast.stmt) -> list[str]:
    if isinstance(node, Definition):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _named(node: ast.stmt, names: Sequence[str]) -> bool:
    return any(name in names for name in _names(node))


def _plain(decorator: ast.expr) -> bool:
    """Decorators of Python's own; others register a class in the release."""
    name = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(name, ast.Name) and name.id in {"staticmethod", "classmethod", "property", "dataclass"}


def _method(top: Sequence[ast.stmt], path: str, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef:
    owner, _, method = name.partition(".")
    for node in top:
        if isinstance(node, ast.ClassDef) and node.name == owner:
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef) and inner.name == method:
                    inner.decorator_list = []
                    return inner
    raise DataError(f"{path} of the clone has no method {name}; is it the commit that the audit read?")
