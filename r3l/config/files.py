"""Configuration files: the folders they are in, and reading one into a typed model."""

from __future__ import annotations

import importlib
import os
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from r3l.core.errors import ConfigError, did_you_mean, unknown
from r3l.core.option import OptionModel
from r3l.files import paths
from r3l.files.yaml_files import parse_yaml, read_yaml

M = TypeVar("M", bound=BaseModel)


OWN = {"methods": "R3L_METHODS", "envs": "R3L_ENVS"}  # variables with a user's folders, as in PATH
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")  # a name becomes a folder and appears in lists with commas

# Texts with a form. \p{C} and \p{Z} are characters that cannot be seen; a space may be inside.
LABEL = r"^[^\p{C}\p{Z}]+( +[^\p{C}\p{Z}]+)*$"
TASK_SET = r"^\w[\w.@+-]*(/\w[\w.@+-]*)*$"
FORMS = {
    LABEL: "a label must be one line of 1 to 100 visible characters",
    TASK_SET: "a task set must be names with slashes between them, such as nano/test",
}
# The name of a thing in print. Each medium escapes what it would read as markup: r3l.report.table,
# .figures.style
Label = Annotated[str, StringConstraints(pattern=LABEL, max_length=100)]
TaskSetName = Annotated[str, StringConstraints(pattern=TASK_SET, max_length=200)]  # NAME/SPLIT


class Strict(OptionModel):
    """Base class of configuration models: frozen; unknown keys and numbers that are not finite are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def own_folders(kind: str) -> list[Path]:
    """The folders that R3L_METHODS or R3L_ENVS lists; they have a user's files and code.

    ``kind``: methods or envs.
    """
    named = os.environ.get(OWN.get(kind, ""), "").split(os.pathsep)
    return [Path(folder).absolute() for folder in named if folder]


def own_variables() -> dict[str, str]:
    """The set ones of R3L_METHODS and R3L_ENVS, with absolute folders, for processes in another directory."""
    joined = {variable: os.pathsep.join(map(str, own_folders(kind))) for kind, variable in OWN.items()}
    return {variable: own for variable, own in joined.items() if own}


def is_own(kind: str, name: str) -> bool:
    """Whether ``name`` of ``kind`` (methods, envs) is a user's: this package has no such file."""
    return f"{name}.yaml" not in os.listdir(paths.CONFIGS / kind)


def names(kind: str) -> list[str]:
    """The configured names of ``kind``.

    Raises ConfigError for a user's folder that does not exist, and for a file there whose name is taken or
    unusable.
    """
    packaged = {
        file.removesuffix(".yaml") for file in os.listdir(paths.CONFIGS / kind) if file.endswith(".yaml")
    }
    own = set()
    for folder in own_folders(kind):
        if not folder.is_dir():
            raise ConfigError(
                f"{OWN[kind]} names {folder}, which is not a directory; correct the variable, or make the "
                "directory"
            )
        for path in sorted(folder.glob("*.yaml")):
            # Methods and environments may share a folder. What is wrong with a file, loading it reports.
            try:
                values = read_yaml(path)
            except ConfigError:
                values = {}
            if kind[:-1] not in values and any(other[:-1] in values for other in OWN):
                continue

            # A user's file with the name of a packaged one would never be read; a name becomes a folder.
            if path.stem in packaged:
                why = "is taken: this package has it"
            elif not _NAME.fullmatch(path.stem):
                why = "must be letters, digits, '_', '-' and '.'"
            else:
                own.add(path.stem)
                continue
            raise ConfigError(
                f"{path} ({OWN[kind]}): the name {path.stem!r} {why}; give it and its code another one"
            )
    return sorted(packaged | own)


def load(kind: str, name: str, model: type[M]) -> M:
    """Read and validate ``<name>.yaml`` of ``kind`` in {tiers, envs, models, methods, tables} as ``model``.

    Raises ConfigError if the file is unknown or malformed.
    """
    known = names(kind)
    if name not in known:
        hint = ""
        if kind in OWN:
            folders_set = os.pathsep.join(map(str, own_folders(kind)))
            which = f"which is {folders_set}" if folders_set else "which is not set"
            hint = f"; your own are found by {OWN[kind]}, {which}"
        raise ConfigError(unknown(kind[:-1], name, known) + hint)

    # The first folder that has it; the name inside must be that of the file.
    folders = [paths.CONFIGS / kind, *own_folders(kind)]
    path = next(path for folder in folders if (path := folder / f"{name}.yaml").is_file())
    config: M = _validated(model, path.read_bytes(), path)
    if (called := getattr(config, kind[:-1])) != name:
        raise ConfigError(
            f"{path}: key {kind[:-1]!r} is {called!r}, but the file is called {name!r}; use one name in both"
        )
    return config


@lru_cache(maxsize=512)  # a grid loads a few dozen files thousands of times; a changed content is read again
def _validated(model: type[M], content: bytes, path: Path) -> M:
    return validate(model, parse_yaml(content, path), str(path))


def find_class(kind: str, code: str) -> Any:
    """The class that ``code`` (``module:Class``) names, of this package or in a user's folders of ``kind``.

    No other module is imported, even if a file or a manifest names one. Raises ConfigError.
    """
    module, _, name = code.partition(":")
    own = [str(folder) for folder in own_folders(kind)]
    top = module.partition(".")[0]
    if top != "r3l" and PathFinder.find_spec(top, own) is None:
        where = f"r3l, or a file of {OWN[kind]} ({os.pathsep.join(own) or 'not set'})"
        raise ConfigError(f"{kind[:-1]} code {code!r} is refused: its module must be of {where}")
    sys.path += [folder for folder in own if folder not in sys.path]
    try:
        found = getattr(importlib.import_module(module), name, None)
    except Exception as error:  # a user's file may raise anything while it is imported
        # One line, with the place in the file unless the message has it.
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = (
            ""
            if isinstance(error, (ImportError, SyntaxError))
            else f" ({place.filename}, line {place.lineno})"
        )
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}{where}"
        raise ConfigError(f"{kind[:-1]} code {code!r} cannot be imported: {reason}") from error
    if not isinstance(found, type):
        raise ConfigError(
            f"{kind[:-1]} code {code!r} cannot be found: module {module!r} has no class {name!r}"
        )
    return found


def validate(model: type[M], values: Any, where: str) -> M:
    """Validate ``values`` as a ``model``. The ConfigError names ``where`` (the file), key, value and fix."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise ConfigError(f"{where}: " + "; ".join(explain(model, e) for e in error.errors())) from error


def explain(model: type[BaseModel], error: Any) -> str:
    """Describe one of pydantic's errors by key, value and fix."""
    key = ".".join(str(part) for part in error["loc"])
    if error["type"] == "missing":
        return f"key {key!r} is missing; add it"
    if error["type"] != "extra_forbidden":
        reason = FORMS.get(error.get("ctx", {}).get("pattern"), error["msg"].lower())
        return f"key {key!r} has value {error['input']!r}: {reason}"
    name = str(error["loc"][-1])
    known = _known_keys(model, error["loc"][:-1])
    elsewhere = [path for path in key_paths(model) if path.rpartition(".")[2] == name]
    meant = did_you_mean(name, known) or (f" (known: {', '.join(sorted(known))})" if known else "")
    if len(elsewhere) == 1:
        meant = f" (did you mean {elsewhere[0]!r}?)"
    return f"unknown key {key!r}{meant}; remove it or correct it"


def key_paths(model: type[BaseModel]) -> Iterator[str]:
    """Every key of ``model`` and of its sections, dotted."""
    for name, field in model.model_fields.items():
        yield name
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from (f"{name}.{path}" for path in key_paths(field.annotation))


def _known_keys(model: type[BaseModel], loc: tuple[Any, ...]) -> list[str]:
    """The keys of the section at ``loc``; [] if a value is not a section."""
    for part in loc:
        field = model.model_fields.get(str(part))
        annotation = field.annotation if field else None
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return []
        model = annotation
    return list(model.model_fields)


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested dictionaries to dotted keys; an empty dictionary gives no key."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found
