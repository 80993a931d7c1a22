"""A file of configs/methods: the code of a method, and what it sets otherwise than the code declares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, get_args

from pydantic import Field, field_validator

from r3l.config.files import Strict, load, names
from r3l.config.variant import Variant
from r3l.core.errors import ConfigError, unknown
from r3l.core.policy import Samples
from r3l.envs.registry import ENVIRONMENTS
from r3l.feedback.feedback import FeedbackSource
from r3l.files.names import Label

ProfileName = Literal["paper", "released_code", "fair"]  # who decides where they differ; fair: one budget for all
PROFILES: tuple[ProfileName, ...] = get_args(ProfileName)
RATE = "train.lr"
SERVED = "engine=server"  # a variant's change: a server has the model


@dataclass(frozen=True)
class Place:
    """What the settings of a method depend on. None: nothing in particular.

    ``environment`` is that of r3l.envs.registry: ``math`` for gsm8k, math500 and dapo too.
    """

    tier: str
    profile: ProfileName = "paper"
    environment: str | None = None
    model: str | None = None
    samples: Samples = "trajectory"


class Where(Strict):
    """One entry of ``where`` in configs/methods: its ``settings`` hold where all conditions do; an empty one always."""

    tiers: list[str] = []
    profiles: list[ProfileName] = []
    environments: list[str] = []
    models: list[str] = []
    samples: Samples | None = None
    settings: dict[str, Any]
    source: str

    @field_validator("tiers")
    @classmethod
    def _tiers_exist(cls, value: list[str]) -> list[str]:
        return _known("tier", value, names("tiers"))

    @field_validator("environments")
    @classmethod
    def _environments_exist(cls, value: list[str]) -> list[str]:
        return _known("environment", value, ENVIRONMENTS)

    @field_validator("models")
    @classmethod
    def _models_exist(cls, value: list[str]) -> list[str]:
        return _known("model", value, names("models"))

    def holds(self, place: Place) -> bool:
        conditions = (
            (self.tiers, place.tier),
            (self.profiles, place.profile),
            (self.environments, place.environment),
            (self.models, place.model),
            ([self.samples] if self.samples else [], place.samples),
        )
        return all(not allowed or value in allowed for allowed, value in conditions)

    def condition(self) -> str:
        """``released_code, alfworld, qwen2.5-7b``."""
        parts = ("/".join(part) for part in (self.tiers, self.profiles, self.environments, self.models) if part)
        return ", ".join([*parts, *([f"samples: {self.samples}"] if self.samples else [])])


def _known(kind: str, value: list[str], known: Iterable[str]) -> list[str]:
    for name in value:
        if name not in known:
            raise ValueError(unknown(kind, name, known))
    return value


HIGHEST_RATE = 0.1  # of a tuned learning rate: a step of AdamW would move every weight by more than most weigh


class MethodConfig(Strict):
    """configs/methods/<name>.yaml.

    ``code`` is module:Class. ``extends`` names a method whose file this one is written over. ``settings`` are those of
    the ``paper`` profile; ``profiles``, ``where`` and ``tiers`` change them, in this order. A dotted key changes the
    run (``train.sync_interval``). ``rates``: tuned learning rates, TIER -> environment -> rate; of a variant under
    TIER@CHANGES. ``needs_stage``: tables have it only where an environment has SFT before RL.
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

    def settings_in(self, place: Place) -> dict[str, tuple[Any, str]]:
        """What this file alone sets in a run, each value with its source."""

        def stated(at: str, settings: Mapping[str, Any]) -> dict[str, tuple[Any, str]]:
            return {key: (value, source_in(self.sources, f"{at}.{key}")) for key, value in settings.items()}

        found = stated("settings", self.settings)
        found |= stated(f"profiles.{place.profile}", self.profiles.get(place.profile, {}))
        for entry in (entry for entry in self.where if entry.holds(place)):
            found |= {key: (value, entry.source) for key, value in entry.settings.items()}
        return found | stated(f"tiers.{place.tier}", self.tiers.get(place.tier, {}))


def source_in(sources: Mapping[str, str], key: str) -> str:
    """The source that a file states for a dotted key, or for what it is part of; '' where it states none."""
    parts = key.split(".")
    stated = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
    return next((sources[name] for name in stated if name in sources), "")


def method_files(name: str) -> list[MethodConfig]:
    """configs/methods/<name>.yaml after the files that it extends. Raises ConfigError where none of them has code."""
    config = load("methods", name, MethodConfig)
    files = [*(method_files(config.extends) if config.extends else []), config]
    if not any(file.code for file in files):
        raise ConfigError(f"configs/methods/{name}.yaml: key 'code' is missing; name module:Class, or extend a method")
    return files


def load_method(name: str) -> MethodConfig:
    """configs/methods/<name>.yaml with the ``code`` of what it extends."""
    files = method_files(name)
    return files[-1].model_copy(update={"code": next(file.code for file in reversed(files) if file.code)})


def settings_in(name: str, place: Place) -> dict[str, Any]:
    """What the files of a method set in a run: an ablation's over all that the method which it extends sets."""
    return {key: value for file in method_files(name) for key, (value, _) in file.settings_in(place).items()}


class TunedRate(NamedTuple):
    """A learning rate that `r3l tune` chose, the method whose file has it, and the source that this states."""

    rate: float
    file: str
    source: str


def tuned_rate(row: Variant, tier: str, env: str) -> TunedRate | None:
    """That of a row, else of its method, else of what the method extends; None where none was tuned."""
    files = method_files(row.method)
    changes = ",".join(change for change in row.changes if not change.startswith("profile="))
    candidates = [(f"{tier}@{changes}", files[-1]), *((tier, file) for file in reversed(files))]
    for at, file in candidates:
        if env in file.rates.get(at, {}):
            return TunedRate(
                file.rates[at][env], file.method, source_in(file.sources, f"rates.{at}").replace("ENV", env)
            )
    return None


def profile_of(row: Variant) -> ProfileName:
    """That which a variant names; by default the paper's. Raises ConfigError for one that there is not."""
    text = row.value("profile", "paper")
    for profile in PROFILES:
        if profile == text:
            return profile
    raise ConfigError(f"method {row.name!r}: {unknown('profile', text, PROFILES)}")


def method_label(row: Variant) -> str:
    """What a method or variant is called in print: ``R3L (alpha=5)``.

    Who wrote its feedback is in it wherever that is not the model itself, the default of every method: rows with
    different teachers are told apart by their names.
    """
    stated = settings_in(row.method, Place("", profile_of(row)))
    source = stated.get("feedback", FeedbackSource.SELF)
    is_told = source == FeedbackSource.SELF or row.value("feedback", "")
    changes, label = row.changed(feedback=None if is_told else source).changes, load_method(row.method).label
    if SERVED in changes:
        changes, label = (
            tuple(change for change in changes if change != SERVED),
            label.replace("base checkpoint", "served model"),
        )
    return label + (f" ({', '.join(changes)})" if changes else "")
