"""A file of configs/envs: the task sets of an environment in each tier, and its options."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from pydantic import Field

from r3l.config.files import Label, Strict, TaskSetName, find_class, load, read_all
from r3l.config.method import ProfileName
from r3l.core.errors import ConfigError
from r3l.core.option import option
from r3l.envs.adapters.base import AdaptedEnvironment
from r3l.envs.base.package import EnvironmentPackage
from r3l.envs.registry import ENVIRONMENTS, find_environment


class EnvSettings(Strict):
    """The environment's part of a run: task sets, turn limit, options of its engine."""

    train_task_set: TaskSetName
    test_task_set: TaskSetName
    validation_task_set: TaskSetName | None = option(
        None,
        "tasks on which settings and base checkpoints are chosen: in neither of the others, nor in SFT",
        "our choice: the test task set no longer tests what is chosen on it",
    )
    further_test_task_sets: list[TaskSetName] = Field(
        [], description="evaluated during training in addition to the test task set (Trinity)"
    )
    max_turns: int = Field(ge=1, le=10_000)
    sft: str | None = Field(None, description="SFT before RL: a file of configs/sft")
    options: dict[str, Any] = Field(
        {}, description="the engine's own settings; its package reads and checks them"
    )

    def tested(self) -> dict[str, str]:
        """The task sets evaluated during training, by the name under which their scores are logged.

        The test task set is ``test``; a further one has its own name with ``_`` for ``/``.
        """
        task_sets = {"test": self.test_task_set}
        for name in self.further_test_task_sets:
            task_sets[name.replace("/", "_")] = name
        return task_sets


class EnvTierConfig(EnvSettings):
    """An environment's settings in one tier, a named scale of experiments such as nano."""

    model: str | None = Field(
        None, description="base checkpoint of this environment, if it is not the tier's"
    )
    set: dict[str, Any] = Field({}, description="changes to the tier: train.tasks_per_step, ...")


class EnvConfig(Strict):
    """configs/envs/<name>.yaml: an environment, and its settings in each tier (scale of experiments).

    ``label``: its printed name. ``sources``: by key, where the values come from. An unknown key is an error.
    """

    env: str
    environment: str = Field("", description="its name in r3l.envs.registry; default: `env`")
    code: str = Field("", description="module:Class of an environment that is not registered (R3L_ENVS)")
    arguments: dict[str, Any] = Field(
        {}, description="the environment that the adapter named by `code` wraps"
    )
    label: Label
    tiers: dict[str, EnvTierConfig]
    profiles: dict[ProfileName, dict[str, Any]] = Field({}, description="changes to `options` by profile")
    further_test_task_sets: dict[ProfileName, list[str]] = Field(
        {}, description="task sets that a profile evaluates during training, in addition to the test task set"
    )
    question_sets: dict[str, dict[str, Label]] = Field(
        {},
        description="by tier: further task sets on which a finished run is scored, and their printed names",
    )
    shared_problems: bool = Field(
        False, description="training and test tasks may have the same problems, of which there are few"
    )
    sources: dict[str, str]

    def in_tier(self, tier: str) -> EnvTierConfig:
        """The environment's settings in ``tier``.

        Raises ConfigError if it has no such tier; the message names its tiers, and the environments that have
        this tier and whose names begin with this one's (``math_...``).
        """
        if tier in self.tiers:
            return self.tiers[tier]
        alike = [
            config.env
            for config in env_configs()
            if config.env.startswith(f"{self.env}_") and tier in config.tiers
        ]
        others = f", or --env {', '.join(alike)}" if alike else ""
        raise ConfigError(
            f"environment {self.env!r} has no tier {tier!r}: give --tier {' or '.join(self.tiers)}{others}"
        )


def env_configs() -> list[EnvConfig]:
    """The files of all environments, sorted by name; the user's broken ones are left out with a warning."""
    return [*read_all("envs", lambda name: load("envs", name, EnvConfig)).values()]


def environment_of(env: str) -> EnvironmentPackage[Any]:
    """The package of an environment: the object that lists its tasks, makes its engine and writes its texts.

    ``env``: a package in the folder envs, or a file of configs/envs or of the user's folders (R3L_ENVS) that
    names such a package or the user's class. Imports it. Raises ConfigError if there is none, or if the
    file's class cannot be used.
    """
    if env in ENVIRONMENTS:
        return find_environment(env)
    config = load("envs", env, EnvConfig)
    if config.code:
        return _package_of_code(env, config.code, json.dumps(config.arguments))
    if config.arguments:
        raise ConfigError(
            f"{env}.yaml: key 'arguments' is for an adapter, which key 'code' names; add it, or remove both"
        )
    return find_environment(config.environment or env)


@cache
def _package_of_code(env: str, code: str, arguments: str) -> EnvironmentPackage[Any]:
    """The package that the class ``code`` (module:Class) makes for ``env``; ``arguments`` are JSON.

    JSON since the cache needs values that can be hashed. Raises ConfigError.
    """
    # An adapter is one class for many environments; any other class is one environment with its own name.
    kind = find_class("envs", code)
    if not (isinstance(kind, type) and issubclass(kind, EnvironmentPackage)):
        raise ConfigError(
            f"env code {code!r} is not an EnvironmentPackage; derive it from r3l.envs.base.one_file"
        )
    if issubclass(kind, AdaptedEnvironment):
        return kind(env, json.loads(arguments))
    if arguments != "{}":
        raise ConfigError(
            f"{env}.yaml: key 'arguments' is for an adapter, but {code!r} is not one; remove it"
        )
    if kind.name != env:
        raise ConfigError(
            f"env code {code!r}: its name is {kind.name!r}, but the file is called {env!r}; use one name in "
            "both"
        )
    return kind()
