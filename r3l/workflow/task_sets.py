"""Task sets of an environment in a tier: their hashes, and a check that they share no problems."""

from __future__ import annotations

import itertools

from typing_extensions import TypedDict

from r3l.config import EnvConfig, EnvTierConfig, TierConfig, environment_of, load
from r3l.core.errors import DataError
from r3l.core.task import shared_problems
from r3l.runs.manifest import TaskSetSummary, describe_task_set


class CheckedTaskSets(TypedDict):
    """The content of results/task_sets/TIER/ENV.json: ``task_sets`` by split (train, test, validation)."""

    schema: int
    tier: str
    env: str
    task_sets: dict[str, TaskSetSummary]


def task_set_hashes(tier: str, env: str) -> dict[str, str]:
    """Committed hashes of an environment's training, test and validation task set in a tier, by name.

    When one changes, the check of the task sets (:func:`check_task_sets`) has to be repeated. Raises
    ConfigError for an unknown tier or environment, or an environment without that tier.
    """
    settings = env_settings(tier, env)
    environment = environment_of(env)
    names = (settings.train_task_set, settings.test_task_set, settings.validation_task_set)
    return {name: environment.task_set_hash(name) for name in names if name}


def check_task_sets(tier: str, env: str) -> CheckedTaskSets:
    """Load an environment's task sets in a tier, check them, and describe them; nothing is written.

    Raises DataError if a hash differs from the committed one, or if two sets share problems and the
    environment's file does not say so (``shared_problems``); ConfigError as :func:`env_settings`.
    """
    settings = env_settings(tier, env)
    names = {"train": settings.train_task_set, "test": settings.test_task_set}
    if settings.validation_task_set:
        names["validation"] = settings.validation_task_set
    tasks = {split: environment_of(env).tasks(name) for split, name in names.items()}

    # No two of them may share a problem: scores on trained problems, or chosen on them, would be too high.
    may_share = load("envs", env, EnvConfig).shared_problems
    for one, other in itertools.combinations(names, 2):
        both = shared_problems(tasks[other], tasks[one])
        if both and not may_share:
            raise DataError(
                f"environment {env!r}: {len(both)} of the {len(tasks[other])} tasks of {names[other]}, such "
                f"as {both[0].id}, have the same problem (payload) as tasks of {names[one]}. Training tasks "
                "must not be tested, nor choices made on either: correct the task sets. If the environment "
                "has too few problems for that, write shared_problems: true in its YAML file: its scores "
                "are then marked"
            )
    task_sets = {split: describe_task_set(env, name) for split, name in names.items()}
    return {"schema": 1, "tier": tier, "env": env, "task_sets": task_sets}


def env_settings(tier: str, env: str) -> EnvTierConfig:
    """The settings of an environment in a tier, from its file in configs/envs.

    Raises ConfigError if either is unknown, or the environment has no such tier.
    """
    load("tiers", tier, TierConfig)
    return load("envs", env, EnvConfig).in_tier(tier)
