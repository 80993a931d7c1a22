"""Configuration files: where they lie, and reading one into a typed model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from r3l.core import paths
from r3l.core.errors import ConfigError, did_you_mean

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's: seven times as fast, and a grid reads thousands

M = TypeVar("M", bound=BaseModel)


class Strict(BaseModel):
    """Frozen, and unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def folders(kind: str) -> list[Path]:
    """Where files of ``kind`` in {tiers, envs, models, methods, tables} lie.

    Methods may also lie in the folders of the environment variable R3L_METHODS (separated like PATH), beside their
    code: a method needs no change of this package.
    """
    extra = os.environ.get("R3L_METHODS", "") if kind == "methods" else ""
    return [paths.CONFIGS / kind, *(Path(folder) for folder in extra.split(os.pathsep) if folder)]


def names(kind: str) -> list[str]:
    """The configured names of ``kind``."""
    return sorted({path.stem for folder in folders(kind) for path in folder.glob("*.yaml")})


def load(kind: str, name: str, model: type[M]) -> M:
    """Read and validate ``<name>.yaml`` of ``kind`` (see :func:`folders`)."""
    path = next((p for folder in folders(kind) if (p := folder / f"{name}.yaml").is_file()), None)
    if path is None:
        raise ConfigError(
            f"there is no {kind[:-1]} {name!r}; known: {', '.join(names(kind))}{did_you_mean(name, names(kind))}"
        )
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), Loader=LOADER)
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML: {error}") from error
    return validate(model, values, str(path))


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
