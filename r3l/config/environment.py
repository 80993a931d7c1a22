"""A file of configs/envs: the task sets of an environment in each tier, and its options."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from pydantic import Field

from r3l.config.files import Label, Strict, TaskSetName, find_class, load, names
from r3l.config.method import ProfileName
from r3l.core.errors import ConfigError
from r3l.core.option import option
from r3l.envs.adapters.base import AdaptedEnvironment
from r3l.envs.base.package import EnvironmentPackage
from r3l.envs.registry import ENVIRONMENTS, find_environment


class EnvSettings(Strict):
    """What a run has of its environment."""

    train_task_set: TaskSetName
    test_task_set: TaskSetName
    validation_task_set: TaskSetName | None = option(
        None,
        "tasks that settings and base checkpoints are chosen on: in neither of the others, nor in SFT",
        "our choice: what is chosen on the test task set is no longer tested by it",
    )
    further_test_task_sets: list[TaskSetName] = Field(
        [], description="evaluated during training beside the test task set (Trinity)"
    )
    max_turns: int = Field(ge=1, le=10_000)
    sft: str | None = Field(None, description="SFT before RL: a file of configs/sft")
    options: dict[str, Any] = Field({}, description="the engine's own settings; its package reads and checks them")

    def tested(self) -> dict[str, str]:
        """The task sets that are evaluated during training, by a plain name; the test task set is ``test``."""
        return {"test": self.test_task_set} | {name.replace("/", "_"): name for name in self.further_test_task_sets}


class EnvTierConfig(EnvSettings):
    """What an environment uses in one tier."""

    model: str | None = Field(None, description="base checkpoint of this environment, where it is not the tier's")
    set: dict[str, Any] = Field({}, description="what this environment changes in the tier: train.tasks_per_step, ...")


class EnvConfig(Strict):
    """configs/envs/<name>.yaml."""

    env: str
    environment: str = Field("", description="what it is registered as in r3l.envs.registry; default: as `env`")
    code: str = Field("", description="module:Class of an environment that is not registered (R3L_ENVS)")
    arguments: dict[str, Any] = Field({}, description="which environment the adapter that `code` names is to take")
    label: Label
    tiers: dict[str, EnvTierConfig]
    profiles: dict[ProfileName, dict[str, Any]] = Field({}, description="what a profile changes in `options`")
    further_test_task_sets: dict[ProfileName, list[str]] = Field(
        {}, description="what a profile evaluates on the way beside the test task set"
    )
    question_sets: dict[str, dict[str, Label]] = Field(
        {}, description="of a tier: task sets that a finished run is scored on besides, and their names in print"
    )
    sources: dict[str, str]

    def in_tier(self, tier: str) -> EnvTierConfig:
        """What it uses in ``tier``. Raises ConfigError where it has no such tier."""
        if tier in self.tiers:
            return self.tiers[tier]
        alike = [
            name
            for name in names("envs")
            if name.startswith(f"{self.env}_") and tier in load("envs", name, EnvConfig).tiers
        ]
        others = f", or --env {', '.join(alike)}" if alike else ""
        raise ConfigError(
            f"environment {self.env!r} has no tier {tier!r}: give --tier {' or '.join(self.tiers)}{others}"
        )


def environment_of(env: str) -> EnvironmentPackage[Any]:
    """The environment that configs/envs/<env>.yaml, or a file of R3L_ENVS, is about, or that is registered as ``env``.

    Raises ConfigError where there is none.
    """
    if env in ENVIRONMENTS:
        return find_environment(env)
    config = load("envs", env, EnvConfig)
    if config.code:
        return _of_code(env, config.code, json.dumps(config.arguments))
    if config.arguments:
        raise ConfigError(
            f"{env}.yaml: key 'arguments' is for an adapter, which key 'code' names; add it, or remove both"
        )
    return find_environment(config.environment or env)


@cache
def _of_code(env: str, code: str, arguments: str) -> EnvironmentPackage[Any]:
    kind = find_class("envs", code)
    if not (isinstance(kind, type) and issubclass(kind, EnvironmentPackage)):
        raise ConfigError(f"env code {code!r} is no EnvironmentPackage; derive it from r3l.envs.base.one_file")
    if issubclass(kind, AdaptedEnvironment):
        return kind(env, json.loads(arguments))
    if arguments != "{}":
        raise ConfigError(f"{env}.yaml: key 'arguments' is for an adapter, and {code!r} is none; remove it")
    if kind.name != env:
        raise ConfigError(
            f"env code {code!r}: its name is {kind.name!r}, but the file is called {env!r}; make them one"
        )
    return kind()
