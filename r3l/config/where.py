"""Settings of a method that hold in some runs only: in an environment, for a model, where a sample is a turn."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import field_validator

from r3l.config.files import Strict, names
from r3l.config.profile import ProfileName
from r3l.core.errors import unknown
from r3l.core.policy import Samples
from r3l.envs.registry import ENVIRONMENTS


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
        """Whether the settings are those of a run."""
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
