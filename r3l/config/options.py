"""The declarations of all hyperparameters, for `r3l list options` and a page of the site (docs/site)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from r3l.config.environment import EnvTierConfig
from r3l.config.files import find_class, is_section, names, read_all
from r3l.config.method import MethodConfig, load_method, method_files
from r3l.config.model import ClusterConfig
from r3l.config.tier import TierConfig
from r3l.core.errors import ConfigError, did_you_mean
from r3l.core.option import source_of
from r3l.envs.registry import ENVIRONMENTS, find_environment

CITED = re.compile(r"\b[AB]-\d+|(?:RLTF )?(?:audit|defect) \d[\d.]*\d?(?:(?:,| and) \d[\d.]*\d)*")
LIMITS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}


@dataclass(frozen=True)
class Option:
    """The declaration of one option, as `r3l list options` prints it.

    ``option``: its name. ``values``: the allowed ones, as text. ``source``: where the default comes from.
    ``used_by``: methods or environments, comma-separated; empty for an option of a tier or a model.
    """

    option: str
    values: str
    default: str
    meaning: str
    source: str
    used_by: str = ""

    @property
    def key(self) -> str:
        """The last part of its name: ``lr`` of ``train.lr``."""
        return self.option.rpartition(".")[2]

    def is_named(self, word: str) -> bool:
        """Whether ``word`` is its name, the last part of it, or a section that it is in."""
        return word in (self.option, self.key) or self.option.startswith(f"{word}.")


def method_options(asked: Collection[str] = ()) -> list[Option]:
    """The options that methods declare in code, sorted by name; one that differs by method has several rows.

    Methods that only extend another method are left out, and broken files of the user's, with a warning;
    the ConfigError of one in ``asked`` is raised.
    """

    def declared(name: str) -> tuple[MethodConfig, type[BaseModel]]:
        config = load_method(name)
        return config, find_class("methods", config.code or "").Settings

    methods = read_all("methods", declared, asked)
    return _shared({name: settings for name, (config, settings) in methods.items() if not config.extends})


def environment_options() -> list[Option]:
    """The options of the environments' engines, sorted by the key of ``--set``.

    One whose declaration differs by environment has several rows.
    """
    engines = {name: find_environment(name).options for name in ENVIRONMENTS}
    return _shared(engines, "env_settings.options.")


def _shared(models: Mapping[str, type[BaseModel]], prefix: str = "") -> list[Option]:
    """The options of several settings models, by their users' names; a shared declaration is one row."""
    users: dict[Option, list[str]] = {}
    for name, model in models.items():
        for option in _options(prefix, model):
            users.setdefault(option, []).append(name)
    rows = [replace(option, used_by=", ".join(names)) for option, names in users.items()]
    return sorted(rows, key=lambda row: (row.option, row.used_by))


def run_options() -> list[Option]:
    """The options of tiers, of environments in them, and of a model's cluster, by the keys of ``--set``."""
    return [
        *_options("", TierConfig),
        *_options("env_settings.", EnvTierConfig),
        *_options("cluster.", ClusterConfig),
    ]


def settings_named(declared: Sequence[Option], wanted: Sequence[str]) -> list[Option]:
    """The options among ``declared`` that the words ``wanted`` name, each once, in the order of the words.

    A word is the name of an option (``train.lr``, ``lr``), a section (``train``), a method or an environment.
    Raises ConfigError for any other word.
    """
    chosen: list[Option] = []
    for word in wanted:
        # A method without a settings class has the class of the method it extends.
        users = {word}
        if word in names("methods"):
            users |= {file.method for file in method_files(word)}
        found = [
            option
            for option in declared
            if option.is_named(word) or users.intersection(option.used_by.split(", "))
        ]
        if not found:
            known = {name for option in declared for name in (option.option, option.key)}
            raise ConfigError(
                f"there is no setting, section, method or environment {word!r}{did_you_mean(word, known)}; "
                "`r3l list options` has their names"
            )
        chosen += [option for option in found if option not in chosen]
    return chosen


def _options(prefix: str, model: type[BaseModel]) -> Iterator[Option]:
    """The declared options of a settings model and of its sections."""
    for key, field in model.model_fields.items():
        if is_section(field.annotation):
            yield from _options(f"{prefix}{key}.", field.annotation)
        elif isinstance(field.json_schema_extra, dict):
            meaning = field.description or ""
            yield Option(f"{prefix}{key}", _values(field), _default(field), meaning, source_of(field))


def _values(field: FieldInfo) -> str:
    """The allowed values of an option, such as ``int >= 1 | none``."""
    limits = []
    for limit in field.metadata:
        for name, sign in LIMITS.items():
            if hasattr(limit, name):
                limits.append(f"{sign} {getattr(limit, name):g}")
    # Limits are for the number, which comes first among the choices.
    first, *others = dict.fromkeys(_choices(field.annotation))
    return " | ".join([f"{first} {' and '.join(limits)}".strip(), *others])


def _default(field: FieldInfo) -> str:
    """The default of an option as text; "" if it has none."""
    if field.is_required():
        return ""
    return ", ".join(map(str, field.default)) if isinstance(field.default, tuple) else str(field.default)


def _choices(annotation: Any) -> Iterator[str]:
    """The allowed words or types of a value, also those inside a union or a tuple."""
    origin = get_origin(annotation)
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        yield from annotation
    elif origin is Literal:
        yield from map(str, get_args(annotation))
    elif origin in (dict, Mapping):
        yield "mapping"
    elif origin is Annotated:
        yield from _choices(get_args(annotation)[0])
    elif parts := get_args(annotation):
        for part in parts:
            yield from _choices(part)
    elif annotation is not ...:
        yield "none" if annotation is NoneType else annotation.__name__
