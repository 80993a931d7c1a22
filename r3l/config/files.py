"""Configuration files: where they lie, and reading one into a typed model."""

from __future__ import annotations

import importlib
import os
import re
import sys
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from r3l.core import paths
from r3l.core.errors import ConfigError, did_you_mean, unknown

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's: seven times as fast, and a grid reads thousands

M = TypeVar("M", bound=BaseModel)


OWN = {"methods": "R3L_METHODS", "envs": "R3L_ENVS"}  # variables that name folders of a user's own files, like PATH
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")  # it becomes a folder, and stands in lists with commas


class Strict(BaseModel):
    """Frozen; unknown keys and numbers that are not finite are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def folders(kind: str) -> list[Path]:
    """Where files of ``kind`` in {tiers, envs, models, methods, tables} lie; those of a user's own last."""
    return [paths.CONFIGS / kind, *own_folders(kind)]


def own_folders(kind: str) -> list[Path]:
    """The folders of R3L_METHODS or R3L_ENVS: a method or an environment lies there beside its code."""
    named = os.environ.get(OWN.get(kind, ""), "").split(os.pathsep)
    return [Path(folder).absolute() for folder in named if folder]


def own_variables() -> dict[str, str]:
    """The variables that are set, with absolute folders: for processes that start somewhere else."""
    joined = {variable: os.pathsep.join(map(str, own_folders(kind))) for kind, variable in OWN.items()}
    return {variable: own for variable, own in joined.items() if own}


def names(kind: str) -> list[str]:
    """The configured names of ``kind``. Raises ConfigError for a file of the user's own that cannot be called so."""
    ours = {path.stem for path in (paths.CONFIGS / kind).glob("*.yaml")}
    files = [path for folder in own_folders(kind) for path in sorted(folder.glob("*.yaml"))]
    own = [path for path in files if not _is_other_kind(path, kind)]
    for path in own:
        if path.stem in ours or not _NAME.fullmatch(path.stem):
            why = "is taken: this package has it" if path.stem in ours else "must be letters, digits, '_', '-' and '.'"
            raise ConfigError(f"{path} ({OWN[kind]}): the name {path.stem!r} {why}; give it and its code another one")
    return sorted({*ours, *(path.stem for path in own)})


def _is_other_kind(path: Path, kind: str) -> bool:
    """Whether a file says that it is of the other kind: methods and environments may share a folder."""
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), Loader=LOADER)
    except yaml.YAMLError:
        return False  # whoever loads it says what is wrong
    return isinstance(values, dict) and kind[:-1] not in values and any(other[:-1] in values for other in OWN)


def load(kind: str, name: str, model: type[M]) -> M:
    """Read and validate ``<name>.yaml`` of ``kind`` (see :func:`folders`)."""
    path = next((p for folder in folders(kind) if (p := folder / f"{name}.yaml").is_file()), None)
    if path is None or Path(name).name != name or (own_folders(kind) and name not in names(kind)):
        raise ConfigError(unknown(kind[:-1], name, names(kind)))
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), Loader=LOADER)
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML: {error}") from error
    config = validate(model, values, str(path))
    if (called := getattr(config, kind[:-1])) != name:
        raise ConfigError(f"{path}: key {kind[:-1]!r} is {called!r}, but the file is called {name!r}; make them one")
    return config


def find_class(kind: str, code: str) -> Any:
    """The class that ``module:Class`` names, of this package or in the folders of the user's own ``kind``.

    Raises ConfigError.
    """
    module, _, name = code.partition(":")
    sys.path += [str(folder) for folder in own_folders(kind) if str(folder) not in sys.path]
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{kind[:-1]} code {code!r} cannot be found: {error}") from error


def validate(model: type[M], values: Any, where: str) -> M:
    """``values`` as ``model``; the ConfigError names ``where``, key, value and fix."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise ConfigError(f"{where}: " + "; ".join(explain(model, e) for e in error.errors())) from error


def explain(model: type[BaseModel], error: Any) -> str:
    """One of pydantic's errors as key, value and fix."""
    key = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        known = _known_keys(model, error["loc"][:-1])
        return f"unknown key {key!r}{did_you_mean(str(error['loc'][-1]), known)}; remove it or correct it"
    if error["type"] == "missing":
        return f"key {key!r} is missing; add it"
    return f"key {key!r} has value {error['input']!r}: {error['msg'].lower()}"


def _known_keys(model: type[BaseModel], loc: tuple[Any, ...]) -> list[str]:
    for part in loc:
        field = model.model_fields.get(str(part))
        annotation = field.annotation if field else None
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return []
        model = annotation
    return list(model.model_fields)
