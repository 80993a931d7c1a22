"""A file of configs/methods, and a row of a table: a method with some settings changed (``r3l@alpha=5``)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, get_args

from pydantic import Field, ValidationError, field_validator

from r3l.config.files import Label, Strict, explain, find_class, load, names, shown_path
from r3l.core.errors import ConfigError, unknown
from r3l.core.policy import Samples
from r3l.envs.registry import ENVIRONMENTS
from r3l.feedback.feedback import FeedbackSource

if TYPE_CHECKING:
    from r3l.core.method import Method

ProfileName = Literal["paper", "released_code", "fair"]  # whose settings hold; fair: equal budgets
PROFILES: tuple[ProfileName, ...] = get_args(ProfileName)
RATE = "train.lr"
HIGHEST_RATE = 0.1  # limit of a tuned rate: a step of AdamW would move every weight by more than most are
SERVED = "engine=server"  # change of a row whose model is behind a server
_CHANGE = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*=.")


class Variant(NamedTuple):
    """A row of a table: a method (a file of configs/methods) and its ``changes``, each ``key=value``.

    A key is a setting of the method (``alpha``), a key of the run (``engine``, ``train.lr``), or
    ``profile``. Nothing is checked here; :func:`variant` does.
    """

    method: str
    changes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The variant's name in directories and tables, such as ``r3l@alpha=5,profile=fair``."""
        return f"{self.method}@{','.join(self.changes)}" if self.changes else self.method

    def changed(self, **values: str | None) -> Variant:
        """A copy with further changes ``key=value`` after its own; a value of None adds nothing.

        A key that the variant changes already is then there twice.
        """
        further = [f"{key}={value}" for key, value in values.items() if value is not None]
        return self._replace(changes=(*self.changes, *further))


def variant(name: str) -> Variant:
    """Parse a name: ``r3l@alpha=5,profile=fair`` -> (``r3l``, (``alpha=5``, ``profile=fair``)).

    The method need not exist. Raises ConfigError for a change that is not ``key=value``, and for a key that
    is changed twice.
    """
    method, at, text = name.partition("@")
    changes = tuple(text.split(",")) if at else ()
    for change in changes:
        check_change(change)
    if len({change.partition("=")[0] for change in changes}) < len(changes):
        raise ConfigError(f"method {name!r} changes a setting twice; keep one")
    return Variant(method, changes)


def check_change(text: str) -> None:
    """Raise ConfigError unless ``text`` looks like ``key=value``, with dots in the key and some value."""
    if not _CHANGE.match(text):
        raise ConfigError(f"override {text!r} must look like key=value, e.g. train.steps=3")


@dataclass(frozen=True)
class Scope:
    """The parts of a run that decide which settings of a method's file apply.

    ``environment`` is a package of the folder envs: ``math`` for gsm8k, math500 and dapo too. None means no
    particular environment or model, so settings under a condition on it do not apply. ``profile``: ``paper``,
    ``released_code`` or ``fair``. ``samples``: a training sample is a complete trajectory or one turn.
    """

    tier: str
    profile: ProfileName = "paper"
    environment: str | None = None
    model: str | None = None
    samples: Samples = "trajectory"


class Where(Strict):
    """An entry of ``where`` in configs/methods: ``settings`` for the runs that fulfil all of its conditions.

    ``tiers``, ``profiles``, ``environments`` and ``models`` list the allowed values; an empty list allows
    every value. ``samples``: the allowed training sample, ``trajectory`` or ``turn``; None: both. ``source``:
    where the settings come from, such as a paper's section.
    """

    tiers: list[str] = []
    profiles: list[ProfileName] = []
    environments: list[str] = []
    models: list[str] = []
    samples: Samples | None = None
    settings: dict[str, Any]
    source: str

    @field_validator("tiers", "environments", "models")
    @classmethod
    def _exist(cls, value: list[str], field: Any) -> list[str]:
        for name in value:
            known = ENVIRONMENTS if field.field_name == "environments" else names(field.field_name)
            if name not in known:
                raise ValueError(unknown(field.field_name[:-1], name, known))
        return value

    def condition(self) -> str:
        """The conditions in one line, for tables: ``released_code, alfworld/webshop, samples: turn``."""
        lists = (self.tiers, self.profiles, self.environments, self.models)
        parts = ["/".join(allowed) for allowed in lists if allowed]
        if self.samples:
            parts.append(f"samples: {self.samples}")
        return ", ".join(parts)


class MethodConfig(Strict):
    """configs/methods/<name>.yaml: code and settings of a method.

    ``code`` is module:Class. ``extends`` names a method whose file is the layer below this one. ``settings``
    belong to the profile ``paper``; ``profiles``, ``where`` (settings under conditions, see :class:`Where`)
    and ``tiers`` change them, in this order. A dotted key changes the run (``train.sync_interval``).
    ``needs_stage``: tables show the method only in environments that have SFT before RL.

    ``rates`` holds tuned learning rates by tier and environment: ``{nano: {math: 1e-4}}``; the key
    ``nano@alpha=5`` has the rates of a variant, and ``math/NAME`` in place of ``math`` the rate for runs from
    the base checkpoint NAME, if that is not the usual one. ``label``: its printed name. ``sources``: by dotted
    key (``settings.alpha``), where the values come from.
    """

    method: str
    label: Label
    extends: str | None = None
    code: str | None = None
    needs_stage: bool = False
    settings: dict[str, Any] = {}
    profiles: dict[ProfileName, dict[str, Any]] = {}
    where: list[Where] = []
    tiers: dict[str, dict[str, Any]] = {}
    rates: dict[str, dict[str, Annotated[float, Field(gt=0, le=HIGHEST_RATE)]]] = {}
    sources: dict[str, str]

    def settings_in(self, scope: Scope) -> dict[str, tuple[Any, str]]:
        """The settings in this file (not the ones below) that a run in ``scope`` has: key -> (value, source).

        A key with a dot changes the run. What ``extends`` names is not read; :func:`settings_in` reads it.
        """
        # Each part of the file, the lowest first: its settings, and the map and section with their sources.
        parts: list[tuple[Mapping[str, Any], Mapping[str, str], str]] = [
            (self.settings, self.sources, "settings"),
            (self.profiles.get(scope.profile, {}), self.sources, f"profiles.{scope.profile}"),
        ]
        for entry in self.where:
            conditions = (
                (entry.tiers, scope.tier),
                (entry.profiles, scope.profile),
                (entry.environments, scope.environment),
                (entry.models, scope.model),
                ([entry.samples] if entry.samples else [], scope.samples),
            )
            if all(value in allowed for allowed, value in conditions if allowed):
                parts.append((entry.settings, {"where": entry.source}, "where"))
        parts.append((self.tiers.get(scope.tier, {}), self.sources, f"tiers.{scope.tier}"))

        found = {}
        for settings, sources, section in parts:
            for key, value in settings.items():
                found[key] = (value, source_in(sources, f"{section}.{key}"))
        return found


def source_in(sources: Mapping[str, str], key: str) -> str:
    """The source that ``sources`` states for a dotted key, else for the innermost section around it.

    '' if there is none.
    """
    while key and key not in sources:
        key = key.rpartition(".")[0]
    return sources.get(key, "")


def method_files(name: str) -> list[MethodConfig]:
    """Read the files of a method, lowest layer first: the methods that it ``extends``, then its own file.

    A file without the key ``code`` uses the code of the file before it. Raises ConfigError if no file names
    code, or if one is unknown or malformed.
    """
    config = load("methods", name, MethodConfig)
    below = method_files(config.extends) if config.extends else []
    if not config.code:
        if not below:
            raise ConfigError(
                f"{shown_path('methods', name)}: key 'code' is missing; name module:Class, or extend a method"
            )
        config = config.model_copy(update={"code": below[-1].code})
    return [*below, config]


def load_method(name: str) -> MethodConfig:
    """Read configs/methods/<name>.yaml; a file without ``code`` inherits it from the method it ``extends``.

    Raises ConfigError if no file names code, or if a file is unknown or malformed.
    """
    return method_files(name)[-1]


def settings_in(name: str, scope: Scope) -> dict[str, Any]:
    """The settings, key -> value, that the files of method ``name`` give a run in ``scope``.

    Its own file overrides the methods that it ``extends``. Defaults in the code are not included. Raises
    ConfigError for an unknown method.
    """
    settings = {}
    for file in method_files(name):
        for key, (value, _) in file.settings_in(scope).items():
            settings[key] = value
    return settings


def method_of(name: str, code: str, settings: Mapping[str, Any]) -> Method:
    """Import the class ``code`` (module:Class), and make the Method with ``settings``, by key, and defaults.

    ``name`` is for errors. Raises ConfigError if the class cannot be used or the settings are wrong.
    """
    factory = find_class("methods", code)
    if not hasattr(factory, "Settings"):
        raise ConfigError(
            f"method {name!r}: its code {code!r} is no method; derive it from r3l.core.method:TrainedMethod"
        )
    try:
        method: Method = factory(settings)
    except ValidationError as error:
        details = "; ".join(explain(factory.Settings, e) for e in error.errors())
        raise ConfigError(f"method {name!r}, settings: {details}") from error
    return method


class TunedRate(NamedTuple):
    """A learning rate that `r3l tune` chose, the method whose file has it, and its source in that file."""

    rate: float
    file: str
    source: str


def tuned_rate(row: Variant, tier: str, start: str) -> TunedRate | None:
    """The tuned learning rate of a variant in ``tier``, from the files of its method.

    ``start``: the key of ``MethodConfig.rates``, ``ENV`` or ``ENV/BASE_CHECKPOINT``. It is the rate tuned for
    the variant's changes (under any profile), else the rate tuned for its method, else for a method that this
    one ``extends``; None if none was tuned.
    """
    files = method_files(row.method)
    changes = ",".join(change for change in row.changes if not change.startswith("profile="))
    candidates = [(f"{tier}@{changes}", files[-1])]
    candidates += [(tier, file) for file in reversed(files)]
    for at, file in candidates:
        if start in file.rates.get(at, {}):
            source = source_in(file.sources, f"rates.{at}").replace("ENV", start.partition("/")[0])
            return TunedRate(file.rates[at][start], file.method, source)
    return None


def profile_of(row: Variant) -> ProfileName:
    """The profile (PROFILES) that a variant's changes name, by default ``paper``.

    Raises ConfigError for an unknown one.
    """
    named = dict(change.split("=", 1) for change in row.changes).get("profile", "paper")
    for profile in PROFILES:
        if profile == named:
            return profile
    raise ConfigError(f"method {row.name!r}: {unknown('profile', named, PROFILES)}")


def method_label(row: Variant) -> str:
    """The printed name of a method or variant: the ``label`` of its file and its changes, ``R3L (alpha=5)``.

    It names the author of the feedback unless that is the model itself, the default of every method, so that
    rows with feedback of different authors have different names. The change ``engine=server`` is not
    printed; in the label "base checkpoint" becomes "served model" instead. Raises ConfigError for an unknown
    method.
    """
    files = method_files(row.method)
    label = files[-1].label
    changes = row.changes
    scope = Scope("", profile_of(row))
    source = FeedbackSource.SELF
    for file in files:
        source, _ = file.settings_in(scope).get("feedback", (source, ""))
    if source != FeedbackSource.SELF and not any(change.startswith("feedback=") for change in changes):
        changes = (*changes, f"feedback={source}")
    if SERVED in changes:
        changes = tuple(change for change in changes if change != SERVED)
        label = label.replace("base checkpoint", "served model")
    return label + (f" ({', '.join(changes)})" if changes else "")
