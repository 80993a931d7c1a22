"""Configuration files: the folders they are in, and reading one into a typed model."""

from __future__ import annotations

import importlib
import inspect
import logging
import os
import re
import sys
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, TypeGuard, TypeVar

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from r3l.core.errors import ConfigError, did_you_mean, unknown
from r3l.core.named_folders import existing_folder, expanded
from r3l.core.option import OptionModel
from r3l.files import paths
from r3l.files.yaml_files import read_yaml

log = logging.getLogger(__name__)
M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")

# Validated files by model, path and content: a grid loads a few dozen files thousands of times, and a file
# that was changed meanwhile is read again.
_VALIDATED: dict[tuple[type[BaseModel], Path, bytes], Any] = {}

OWN = {"methods": "R3L_METHODS", "envs": "R3L_ENVS"}  # variables with a user's folders, as in PATH
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")  # a name becomes a folder and appears in lists with commas

# Texts with a form. \p{C} and \p{Z} are characters that cannot be seen; a space may be inside.
LABEL = r"^[^\p{C}\p{Z}]+( +[^\p{C}\p{Z}]+)*$"
TASK_SET = r"^\w[\w.@+-]*(/\w[\w.@+-]*)*$"
FORMS = {
    LABEL: "a label must be one line of 1 to 100 visible characters",
    TASK_SET: "a task set must be names with slashes between them, such as nano/test",
}
# The printed name of a thing. Each medium escapes what it would read as markup: r3l.report.table,
# .figures.style
Label = Annotated[str, StringConstraints(pattern=LABEL, max_length=100)]
TaskSetName = Annotated[str, StringConstraints(pattern=TASK_SET, max_length=200)]  # NAME/SPLIT


class Strict(OptionModel):
    """Base class of configuration models: frozen; unknown keys and numbers that are not finite are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def own_folders(kind: str) -> list[Path]:
    """The user's folders of ``kind``, absolute: the folders in R3L_METHODS (methods) or R3L_ENVS (envs).

    The variables are separated as PATH is. [] if the variable is not set, and for any other kind. The folders
    need not exist.
    """
    named = os.environ.get(OWN.get(kind, ""), "").split(os.pathsep)
    return [expanded(folder).absolute() for folder in named if folder]


def own_variables() -> dict[str, str]:
    """R3L_METHODS and R3L_ENVS with absolute folders, for a process in another directory.

    A variable that is not set is left out.
    """
    variables = {}
    for kind, variable in OWN.items():
        if folders := own_folders(kind):
            variables[variable] = os.pathsep.join(map(str, folders))
    return variables


def is_own(kind: str, name: str) -> bool:
    """Whether this package has no ``<name>.yaml`` in configs/``kind``, so that a user's file must have it.

    ``kind``: methods or envs. True for an unknown name too.
    """
    return not (paths.CONFIGS / kind / f"{name}.yaml").is_file()


def names(kind: str) -> list[str]:
    """The sorted names of the files of ``kind`` (methods, envs, tiers, ...), without ``.yaml``.

    They are in configs/``kind`` and in the user's folders. Raises ConfigError for a user's folder that does
    not exist, and for a file there whose name this package has or that cannot be a folder's.
    """
    packaged = {
        file.removesuffix(".yaml") for file in os.listdir(paths.CONFIGS / kind) if file.endswith(".yaml")
    }
    own = set()
    for folder in own_folders(kind):
        for path in sorted(existing_folder(OWN[kind], folder).glob("*.yaml")):
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
                f"{path} ({OWN[kind]}): the name {path.stem!r} {why}; give it and its code another name"
            )
    return sorted(packaged | own)


def load(kind: str, name: str, model: type[M]) -> M:
    """Read ``<name>.yaml`` from configs/``kind`` or the user's folders, and validate it as a ``model``.

    A file with the same content is validated once in a process. Raises ConfigError if there is no such file,
    if it is malformed, or if the name in it is not the file's.
    """
    # The package's own file; names() looks for a user's, and knows what is wrong with it.
    path = paths.CONFIGS / kind / f"{name}.yaml"
    own = own_folders(kind)
    if (own or not path.is_file()) and name not in (known := names(kind)):
        hint = ""
        if kind in OWN:
            folders_set = os.pathsep.join(map(str, own))
            which = f"which is {folders_set}" if folders_set else "which is not set"
            hint = f"; your own are found by {OWN[kind]}, {which}"
        raise ConfigError(unknown(kind[:-1], name, known) + hint)

    # The first folder that has it; the name inside must be the file's.
    path = _path(kind, name)
    content = path.read_bytes()
    if (model, path, content) not in _VALIDATED:
        _VALIDATED[model, path, content] = validate(model, read_yaml(path, content), str(path))
    config: M = _VALIDATED[model, path, content]
    check_file_name(path, kind[:-1], getattr(config, kind[:-1]))
    return config


def check_file_name(path: Path, key: str, named: str) -> None:
    """Raise ConfigError unless ``named``, the value of ``key`` in the YAML file ``path``, is the file's name."""
    if named != path.stem:
        raise ConfigError(
            f"{path}: key {key!r} is {named!r}, but the file is called {path.stem!r}; use one name in both"
        )


def read_all(kind: str, read: Callable[[str], T], asked: Collection[str] = ()) -> dict[str, T]:
    """What ``read`` returns for each file of ``kind`` (methods, envs), by its name, as :func:`names` lists them.

    A user's file that ``read`` cannot use is left out with a warning, so that one broken file does not stop
    the commands about all others. Raises its ConfigError if the name is ``asked`` for, or if the file is the
    package's.
    """
    found = {}
    for name in names(kind):
        value = read(name) if name in asked else read_or_warn(kind, name, read)
        if value is not None:
            found[name] = value
    return found


def read_or_warn(kind: str, name: str, read: Callable[[str], T]) -> T | None:
    """What ``read`` returns for the file ``name`` of ``kind``; None, with a warning, for a broken user's file.

    Raises the ConfigError of ``read`` for a file of the package.
    """
    try:
        return read(name)
    except ConfigError as error:
        if not is_own(kind, name):
            raise
        _warn_once(f"{kind[:-1]} {name!r} is left out: {error}")
        return None


@cache
def _warn_once(text: str) -> None:
    """Log a warning, once in this process."""
    log.warning("%s", text)


def _path(kind: str, name: str) -> Path:
    """The file ``<name>.yaml`` of ``kind``: the package's, else that of the first user's folder with it."""
    packaged = paths.CONFIGS / kind / f"{name}.yaml"
    own = [folder / f"{name}.yaml" for folder in own_folders(kind)]
    return next((path for path in (packaged, *own) if path.is_file()), packaged)


def shown_path(kind: str, name: str) -> str:
    """The file ``<name>.yaml`` of ``kind`` as texts name it: below configs, or a user's whole path."""
    return str(_path(kind, name)) if is_own(kind, name) else f"configs/{kind}/{name}.yaml"


def find_class(kind: str, code: str) -> Any:
    """Import the class that ``code`` (``module:Class``) names, from r3l or the user's folders of ``kind``.

    The user's folders are appended to sys.path. Raises ConfigError if the module is elsewhere (it is then not
    imported, even if a manifest names it), if it has the name of an installed one, if it cannot be imported,
    or if it has no such class.
    """
    module, _, name = code.partition(":")
    own = [str(folder) for folder in own_folders(kind)]
    top = module.partition(".")[0]
    if top != "r3l":
        users = PathFinder.find_spec(top, own)
        if users is None:
            where = f"r3l, or a file of {OWN[kind]} ({os.pathsep.join(own) or 'not set'})"
            raise ConfigError(f"{kind[:-1]} code {code!r} is refused: its module must be of {where}")
        installed = _installed(top)
        if installed not in (None, users.origin):
            raise ConfigError(
                f"{kind[:-1]} code {code!r}: Python would not import {users.origin or top}, but the installed "
                f"module of the same name ({installed}); rename yours, also in key 'code'"
            )
    sys.path += [folder for folder in own if folder not in sys.path]
    try:
        found = getattr(importlib.import_module(module), name, None)
    except (Exception, SystemExit) as error:  # a user's file may raise anything while it is imported
        # One line, with the place in the file unless the message has it.
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        if not isinstance(error, (ImportError, SyntaxError)):
            place = traceback.extract_tb(error.__traceback__)[-1]
            reason += f" ({place.filename}, line {place.lineno})"
        raise ConfigError(f"{kind[:-1]} code {code!r} cannot be imported: {reason}") from error
    if not isinstance(found, type):
        raise ConfigError(
            f"{kind[:-1]} code {code!r} cannot be found: module {module!r} has no class {name!r}"
        )
    if top != "r3l":
        _refuse_misspelled(sys.modules[module])
    return found


@cache
def _installed(top: str) -> str | None:
    """The file of the module ``top`` of Python or of an installed package; None if there is none."""
    if top in sys.stdlib_module_names:
        return "part of Python"
    folders = [folder for folder in sys.path if folder.endswith(("site-packages", "dist-packages"))]
    spec = PathFinder.find_spec(top, folders)
    return spec.origin if spec else None


def _refuse_misspelled(module: ModuleType) -> None:
    """Refuse a public function of a user's class whose name is nearly one that r3l calls, such as ``explor``.

    It would never be called, and what it should replace would run without a word. A function that other code
    of the file mentions is a helper. Raises ConfigError.
    """
    for cls in vars(module).values():
        if not inspect.isclass(cls) or cls.__module__ != module.__name__:
            continue  # imported into the file
        known: set[str] = set()  # public functions of the classes of r3l that it is derived from
        for base in cls.__mro__[1:]:
            if base.__module__.startswith("r3l."):
                known |= {name for name in _functions(base) if not name.startswith("_")}
        own = _functions(cls)
        for name in sorted(own - known):
            close = get_close_matches(name, sorted(known - own), n=1, cutoff=0.85)
            # The file is read only for a suspect: classes are found thousands of times for a grid.
            if close and not re.search(rf"\.{name}\b", inspect.getsource(module)):
                raise ConfigError(
                    f"{module.__file__}: {cls.__name__}.{name} is never called: r3l knows no such function "
                    f"(did you mean {close[0]!r}?). Rename it; a helper of yours may begin with '_'"
                )


def _functions(cls: type) -> set[str]:
    """Names of the functions that the class itself defines."""
    return {name for name, value in vars(cls).items() if inspect.isfunction(value)}


def validate(model: type[M], values: Any, where: str) -> M:
    """``values`` (keys and values of a file) as a ``model``.

    Raises ConfigError that lists every error with ``where`` (such as the file's path), key, value and fix.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise ConfigError(f"{where}: " + "; ".join(explain(model, e) for e in error.errors())) from error


def explain(model: type[BaseModel], error: Any) -> str:
    """A sentence for one of pydantic's errors about a ``model``: the key, its value and the fix.

    ``error``: an entry of ``ValidationError.errors()``. For an unknown key the sentence suggests a similar
    one, or the key of another section that has the same name.
    """
    key = ".".join(str(part) for part in error["loc"])
    if error["type"] == "missing":
        return f"key {key!r} is missing; add it"
    if error["type"] == "model_type":
        return f"key {key!r} has value {error['input']!r}: keys and values are expected (key: value)"
    if error["type"] != "extra_forbidden":
        reason = FORMS.get(error.get("ctx", {}).get("pattern"), error["msg"].lower())
        return f"key {key!r} has value {error['input']!r}: {reason}"

    # An unknown key. Known are the keys of its section, the model to which its other parts lead.
    *sections, name = map(str, error["loc"])
    section: Any = model
    for part in sections:
        field = section.model_fields.get(part) if is_section(section) else None
        section = field.annotation if field else None
    known = sorted(section.model_fields) if is_section(section) else []
    meant = did_you_mean(name, known)
    if not meant and known:
        meant = f" (known: {', '.join(known)})"
    elsewhere = [path for path in key_paths(model) if path.rpartition(".")[2] == name]
    if len(elsewhere) == 1:
        meant = f" (did you mean {elsewhere[0]!r}?)"
    return f"unknown key {key!r}{meant}; remove it or correct it"


def key_paths(model: type[BaseModel]) -> Iterator[str]:
    """Every key of ``model`` and of the models inside it, dotted: ``train``, ``train.lr``, ..."""
    for name, field in model.model_fields.items():
        yield name
        if is_section(field.annotation):
            yield from (f"{name}.{path}" for path in key_paths(field.annotation))


def is_section(annotation: Any) -> TypeGuard[type[BaseModel]]:
    """Whether values of this type are models with their own keys."""
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested dictionaries: ``{"a": {"b": 1}}`` -> ``{"a.b": 1}``, each key after ``prefix``.

    An empty dictionary gives no key.
    """
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The sorted dotted keys whose values differ in two nested dictionaries; a missing value is None."""
    return [key for key, *_ in differences(one, other)]


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """(dotted key, value in ``one``, value in ``other``) for each key of :func:`differing`.

    A value is ``not set`` where its dictionary lacks the key.
    """
    a, b = flat(one), flat(other)
    keys = sorted(key for key in a.keys() | b.keys() if a.get(key) != b.get(key))
    return [(key, a.get(key, "not set"), b.get(key, "not set")) for key in keys]
