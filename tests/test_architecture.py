"""The folders stand in one order, and imports point down it; r3l/ opens with the paper."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from r3l.files.paths import ROOT

# Top to bottom: a folder (or a file of r3l/) may import what stands in a line below its own.
LAYERS = (
    *("cli", "api", "probe", "report", "workflow", "bench"),
    *("evaluation trinity", "sft", "local", "runs", "endpoint", "config"),
    *("adaptive", "baselines algorithm envs", "retry", "reflection credit amplification"),
    *("chat feedback files processes released", "core stats"),
)
LEVEL = {name: -number for number, layer in enumerate(LAYERS) for name in layer.split()}
PAPER = {"adaptive", "algorithm", "reflection", "retry", "credit", "amplification"}


def modules() -> dict[str, Path]:
    """Every module of the package by its name."""
    folders = {"r3l": ROOT / "r3l", "r3l.baselines": ROOT / "baselines", "r3l.envs": ROOT / "envs"}
    paths = {
        f"{prefix}.{path.relative_to(folder).with_suffix('').as_posix().replace('/', '.')}": path
        for prefix, folder in folders.items()
        for path in folder.rglob("*.py")
    }
    return {name.removesuffix(".__init__"): path for name, path in paths.items()}


@cache
def imported(path: Path) -> set[str]:
    """The modules of r3l that a file imports, in functions too."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    whole = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    parts = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
    names = whole | {f"{node.module}.{alias.name}" for node in parts for alias in node.names}
    return {name for name in names if name.startswith("r3l.")}


def unit(module: str) -> str:
    """The folder or file of r3l/ that a module stands in."""
    return module.split(".")[1]


def test_every_import_points_down():
    wrong = [
        f"{module} imports {target}"
        for module, path in modules().items()
        if module != "r3l"
        for target in imported(path)
        if unit(target) != unit(module) and LEVEL[unit(target)] >= LEVEL[unit(module)]
    ]
    assert wrong == []


def test_methods_know_no_environment_and_environments_no_method():
    for module, path in modules().items():
        targets = {unit(target) for target in imported(path)}
        if unit(f"{module}.") in {"baselines", *PAPER}:
            assert "envs" not in targets, module
        if module.startswith("r3l.envs"):
            assert not targets & {"baselines", *PAPER}, module


def test_no_function_calls_what_its_own_name_hides():
    """``kept = [x for x in xs if kept(x)]`` raises NameError, and linters pass it."""
    for module, path in modules().items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        known = {(alias.asname or alias.name) for node in imports for alias in node.names}
        known |= {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        for function in (
            node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ):
            names = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
            hidden = {node.id for node in names if isinstance(node.ctx, ast.Store)} & known
            called = {
                node.func.id
                for node in ast.walk(function)
                if isinstance(node, ast.Call) and node.func in names
            }
            assert not hidden & called, f"{module}, {function.name}"
