"""The user's files (R3L_METHODS, R3L_ENVS) that decide what a run does: part of its configuration."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from r3l.config.environment import EnvConfig
from r3l.config.files import load, own_folders
from r3l.config.method import MethodConfig
from r3l.files.digests import file_sha256

UserCode = dict[str, dict[str, str]]  # by kind (envs, methods): file below its folder -> its sha256
Files = dict[str, Path]


def user_code(env: str, method: str | None = None) -> UserCode:
    """Digests (sha256) of the user's YAML files of an environment and a method, and of their code.

    Code means the modules that a file names, and what these import, if it is in the user's folders
    (R3L_METHODS, R3L_ENVS); of a package, all its files. A method's also covers the methods that it extends;
    ``method`` None: only the environment's. {} if both are this project's. Raises ConfigError for an unknown
    environment or method.
    """
    of_env = load("envs", env, EnvConfig)
    found: dict[str, Files] = {"envs": _files("envs", env, of_env.code), "methods": {}}
    for module in _modules(of_env.arguments):  # the wrapped environment may be in these folders too
        _follow(module, found["envs"])
    while method is not None:
        config = load("methods", method, MethodConfig)
        found["methods"] |= _files("methods", method, config.code or "")
        method = config.extends
    digests = {}
    for kind, files in found.items():
        if files:
            digests[kind] = {name: file_sha256(files[name]) for name in sorted(files)}
    return digests


def changed_files(recorded: UserCode, present: UserCode) -> list[str]:
    """The sorted names of files whose digests differ, or that only one of the two has; [] if none."""
    differing = set()
    for kind in {*recorded, *present}:
        before = recorded.get(kind, {})
        now = present.get(kind, {})
        differing |= {name for name in {*before, *now} if before.get(name) != now.get(name)}
    return sorted(differing)


def _files(kind: str, name: str, code: str) -> Files:
    """The YAML file ``name`` of the user's folders, and the files of its code."""
    yamls = (folder / f"{name}.yaml" for folder in own_folders(kind))
    files = {path.name: path for path in yamls if path.is_file()}
    _follow(code.partition(":")[0], files)
    return files


def _follow(module: str, files: Files) -> None:
    """Add the files of ``module``, and of what it imports."""
    # The file of the module, or all files of its package, in the first of the user's folders that has it.
    top = module.partition(".")[0]
    if not top:
        return
    found: Files = {}
    for folder in [*own_folders("methods"), *own_folders("envs")]:
        if (folder / top / "__init__.py").is_file():
            paths = (path for path in (folder / top).rglob("*") if path.is_file() and path.suffix != ".pyc")
            found = {str(path.relative_to(folder)): path for path in paths}
            break
        if (folder / f"{top}.py").is_file():
            found = {f"{top}.py": folder / f"{top}.py"}
            break

    # What they import may be in these folders too; a file that is known already is not read again.
    for name, path in found.items():
        if name not in files:
            files[name] = path
            for imported in _imports(path) if path.suffix == ".py" else ():
                _follow(imported, files)


def _modules(value: Any) -> Iterator[str]:
    """Texts in a value of a YAML file that may name a module, in the notation of verifiers and gymnasium."""
    if isinstance(value, str):
        name = re.split("[.:]", value)[0].replace("-", "_").lower()
        if name.isidentifier():
            yield name
    elif isinstance(value, dict):
        for part in value.values():
            yield from _modules(part)
    elif isinstance(value, list):
        for part in value:
            yield from _modules(part)


def _imports(path: Path) -> Iterator[str]:
    """The absolute imports of a Python file, those inside functions too."""
    try:
        parsed = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):  # importing the module says what is wrong with it
        return
    for node in ast.walk(parsed):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
