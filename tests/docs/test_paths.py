"""Files, modules and names that the pages speak of exist."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from types import ModuleType

import pytest
from docs.pages import PAGES, blocks, inline_code

from r3l.files.paths import ROOT

_PATH = re.compile(
    r"(?<![\w/.@-])(?:r3l|baselines|envs|configs|tests|docs|examples|workflow|results/stored)/[\w./*{},+-]*[\w/*}]"
)
_NAME = re.compile(r"\br3l(?!\.(?:yaml|txt))(?:\.\w+)+(?::\w+(?:\.\w+)*)?")
_PLACEHOLDER = re.compile(r"NAME|\bX\b|[<>]|^r3l/(train|test)$")  # the last: task sets of ScienceWorld


def expand(path: str) -> list[str]:
    """``a/{b,c}.py`` -> ``a/b.py``, ``a/c.py``."""
    match = re.search(r"\{([^}]*)\}", path)
    if not match:
        return [path]
    return [
        whole for part in match[1].split(",") for whole in expand(path[: match.start()] + part + path[match.end() :])
    ]


def exists(path: str) -> bool:
    return bool(list(ROOT.glob(path))) if "*" in path else (ROOT / path).exists()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_paths_exist(page):
    code = [*blocks(page), *inline_code(page)]
    paths = {part for text in code for match in _PATH.findall(text) for part in expand(match)}
    assert [path for path in sorted(paths) if not _PLACEHOLDER.search(path) and not exists(path)] == []


def attribute(owner: object, name: str) -> object:
    """An attribute, or a field of a dataclass or settings model, which need not be one."""
    if inspect.isclass(owner) and not hasattr(owner, name):
        fields = {f.name for f in dataclasses.fields(owner)} if dataclasses.is_dataclass(owner) else set()
        if name in fields | set(getattr(owner, "model_fields", {})) | set(inspect.get_annotations(owner)):
            return None
    return getattr(owner, name)


def resolve(name: str) -> None:
    """Import what a dotted name says: modules first, then attributes. Raises where there is no such thing."""
    modules, _, attributes = name.partition(":")
    owner: object = importlib.import_module("r3l")
    for part in modules.split(".")[1:]:
        if isinstance(owner, ModuleType) and hasattr(owner, "__path__") and not hasattr(owner, part):
            owner = importlib.import_module(f"{owner.__name__}.{part}")
        else:
            owner = attribute(owner, part)
    for part in filter(None, attributes.split(".")):
        owner = attribute(owner, part)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_names_exist(page):
    for text in [*blocks(page), *inline_code(page)]:
        for name in _NAME.findall(text):
            resolve(name)
