"""A file of configs/methods: the code of a method, and what it sets otherwise than the code declares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from r3l.config.files import Strict, load
from r3l.config.profile import ProfileName, profile_of
from r3l.config.variant import Variant
from r3l.config.where import Place, Where
from r3l.core.errors import ConfigError
from r3l.core.feedback import FeedbackSource


class MethodConfig(Strict):
    """configs/methods/<name>.yaml.

    ``code`` is module:Class. ``extends`` names a method whose file this one changes. ``settings`` are those of the
    ``paper`` profile; ``profiles``, ``where`` and ``tiers`` change them. A dotted key changes the run
    (``train.sync_interval``). ``needs_stage``: tables have it where an environment has a supervised stage, and nowhere
    else.
    """

    method: str
    label: str
    extends: str | None = None
    code: str | None = None
    needs_stage: bool = False
    settings: dict[str, Any] = {}
    profiles: dict[ProfileName, dict[str, Any]] = {}
    where: list[Where] = []
    tiers: dict[str, dict[str, Any]] = {}
    sources: dict[str, str]

    def settings_in(self, place: Place) -> dict[str, Any]:
        """Settings of a run: the profile's, then every ``where`` that holds, in order, then the tier's."""
        settings = self.settings | self.profiles.get(place.profile, {})
        for entry in self.where:
            settings |= entry.settings if entry.holds(place) else {}
        return settings | self.tiers.get(place.tier, {})


def load_method(name: str) -> MethodConfig:
    """configs/methods/<name>.yaml with what it extends filled in.

    What the file sets holds in every profile and tier of the method it extends: an ablation stays one.
    """
    config = load("methods", name, MethodConfig)
    if config.extends is None:
        if config.code is None:
            raise ConfigError(
                f"configs/methods/{name}.yaml: key 'code' is missing; name module:Class, or extend a method"
            )
        return config
    base = load_method(config.extends)
    return config.model_copy(
        update={
            "code": config.code or base.code,
            "settings": base.settings | config.settings,
            "sources": base.sources | config.sources,
            "profiles": _inherit(base.profiles, config.profiles, config.settings),
            "where": [_left(entry, config) for entry in base.where] + config.where,
            "tiers": _inherit(base.tiers, config.tiers, config.settings),
        }
    )


def method_label(row: Variant) -> str:
    """What a method or variant is called in print: ``R3L (alpha=5)``.

    Who wrote its feedback is in it wherever that is not the model itself, the default of every method: rows with
    different teachers are told apart by their names.
    """
    method = load_method(row.method)
    source = (method.settings | method.profiles.get(profile_of(row), {})).get("feedback", FeedbackSource.SELF)
    is_told = source == FeedbackSource.SELF or row.value("feedback", "")
    changes = row.changed(feedback=None if is_told else source).changes
    return method.label + (f" ({', '.join(changes)})" if changes else "")


def _left(entry: Where, config: MethodConfig) -> Where:
    """What an inherited entry still sets, where a method that extends another sets some of it itself."""
    own = config.settings.keys() | {key for name in entry.profiles for key in config.profiles.get(name, {})}
    return entry.model_copy(update={"settings": {k: v for k, v in entry.settings.items() if k not in own}})


def _inherit(base: Mapping[Any, Any], ours: Mapping[Any, Any], settings: Mapping[str, Any]) -> dict[Any, Any]:
    """Profiles or tiers of a method and of the one that extends it; what the latter sets is left out of the former."""
    unset = {name: {k: v for k, v in changes.items() if k not in settings} for name, changes in base.items()}
    return {name: unset.get(name, {}) | ours.get(name, {}) for name in {*unset, *ours}}
