"""Differential testing against the released code: single definitions of a clone, our side of it, and the comparison.

Nothing of the releases is part of this project. The clones that $R3L_RELEASE and $RLTF_RELEASE name are read at the
pinned commits through git, whatever their working trees hold. Only the named definitions are executed.
"""

from __future__ import annotations
import __future__

import ast
import copy
import json
import math
import subprocess
import sys
from collections import Counter
from functools import cache

from r3l.envs.registry import find_environment

from r3l.config import build_method, resolve
from r3l.core.task import Task
from r3l.core.trajectory import Group, Trajectory, TrajectoryKind
from r3l.original.clones import folder_of

PROFILE = "released_code"
TASK = Task("case", "alfworld", "train")
# The imports of a released file that are kept: everything else in it is the release's own.
LIBRARIES = {"numpy", "torch", "math_verify", "latex2sympy2_extended", "sympy", "regex", "yaml"}
DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def git(release, *arguments):
    """What git prints in the clone of a release. Raises ConfigError saying how to clone it where there is none."""
    command = ["git", "-C", str(folder_of(release)), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@cache
def source(release, path):
    return git(release, "show", f"{release.commits[0]}:{path}")


def definitions(release, *files):
    """A namespace with definitions of a release; ``files``: (path, names), a name may be ``Class.method``.

    Decorators and base classes that register something in the release are left out.
    """
    namespace = {"__name__": "released"}
    for path, names in files:
        execute(source(release, path), names, namespace)
    return namespace


def execute(text, names, namespace):
    """Run the definitions ``names`` of a file, and the harmless imports at its top, in ``namespace``."""
    top = ast.parse(text).body
    found = [node for node in top if set(_names(node)) & set(names)]
    found += [_method(top, *name.split(".")) for name in names if "." in name]
    known = {name for node in found for name in _names(node)}
    assert {name.split(".")[-1] for name in names} <= known, f"no {', '.join(names)}: is it the pinned commit?"
    for node in ast.walk(ast.Module(found, [])):
        if isinstance(node, DEFINITIONS):
            node.decorator_list = [d for d in node.decorator_list if _is_plain(d)]
        if isinstance(node, ast.ClassDef):
            node.bases = [base for base in node.bases if isinstance(base, ast.Name) and base.id in {*known, *namespace}]
            node.keywords = []
    flags = __future__.annotations.compiler_flag  # annotations name classes that are not there
    exec(compile(ast.Module([*_imports(top), *found], []), "released", "exec", flags), namespace)


def _imports(top):
    for node in top:
        if isinstance(node, ast.Import):
            aliases = [alias for alias in node.names if _is_harmless(alias.name)]
            if aliases:
                yield ast.copy_location(ast.Import(aliases), node)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module != "__future__":
            yield from [node] * _is_harmless(node.module)


def _is_harmless(module):
    return module.partition(".")[0] in LIBRARIES | sys.stdlib_module_names


def _is_plain(decorator):
    name = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(name, ast.Name) and name.id in {"staticmethod", "classmethod", "property", "dataclass"}


def _names(node):
    if isinstance(node, DEFINITIONS):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _method(top, owner, name):
    (found,) = [
        method
        for node in top
        if isinstance(node, ast.ClassDef) and node.name == owner
        for method in node.body
        if isinstance(method, DEFINITIONS) and method.name == name
    ]
    found.decorator_list = []
    return found


@cache
def method_of(name, environment="alfworld"):
    """A method of configs/methods, or a variant of one, under profile ``released_code``."""
    base, _, changes = name.partition("@")
    return build_method(resolve("paper", environment, f"{base}@profile={PROFILE},{changes}".rstrip(","), 0))


@cache
def run_of(environment):
    return resolve("paper", environment, f"r3l@profile={PROFILE}", 0)


def dialogue_of(environment, max_turns=None):
    """Prompts are short, since nobody reads them."""
    settings = run_of(environment).env_settings
    return find_environment(environment).dialogue("compact", max_turns or settings.max_turns, settings.options)


def group_of(rewards):
    return Group(TASK, [Trajectory(TASK, m, TrajectoryKind.BASE, reward=r) for m, r in enumerate(rewards)])


def pick(draw, values):
    return values[int(draw.integers(len(values)))]


def compare(cases, ours, theirs, reason=lambda case, ours, theirs: "", tolerance=0.0):
    """Assert that both answer every case alike, or differ for a reason of docs/audit.md.

    Returns how often each reason was needed, and under "" how many answers are equal. What a side raises is its answer.
    """
    found = Counter()
    for case in cases:
        one, other = answer(ours, case), answer(theirs, copy.deepcopy(case))
        why = "" if agree(one, other, tolerance) else reason(case, one, other)
        assert why or agree(one, other, tolerance), f"{case}\n ours {one}\n released {other}"
        found[why] += 1
    return found


def answer(function, case):
    try:
        value = function(case)
    except Exception as error:  # noqa: BLE001 - of the release or ours, it is the answer
        return {"raised": type(error).__name__}
    return json.loads(json.dumps(value))


def agree(ours, theirs, tolerance):
    """Equal, numbers within the tolerance; NaN equals NaN, and True is not 1."""
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(agree(a, b, tolerance) for a, b in zip(ours, theirs, strict=True))
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(agree(ours[key], theirs[key], tolerance) for key in ours)
    if type(ours) in (int, float) and type(theirs) in (int, float):
        return math.isclose(ours, theirs, rel_tol=tolerance, abs_tol=tolerance) or (ours != ours and theirs != theirs)
    return type(ours) is type(theirs) and ours == theirs
