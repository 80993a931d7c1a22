"""Task sets of an environment in a tier: which files they depend on, and whether training and test tasks are apart."""

from __future__ import annotations

import inspect
import itertools
import os
from pathlib import Path
from typing import Any

from r3l.config import EnvConfig, EnvTierConfig, TierConfig, environment_of, load
from r3l.core.errors import DataError
from r3l.files.paths import CONFIGS, ENVS
from r3l.runs.manifest import describe_task_set


def task_set_files(env: str) -> list[str]:
    """Committed files and definitions of an environment's task sets: when they change, its runs are stale."""
    package = environment_of(env)
    name = package.name
    paths = [*(ENVS / name / "task_sets").glob("*.json"), *(CONFIGS / "task_sets").glob(f"{name}_*.yaml")]
    if load("envs", env, EnvConfig).code:  # one of the user's own: its code draws them
        paths.append(Path(inspect.getfile(type(package))))
    return sorted(os.path.relpath(path) for path in paths)


def check_task_sets(tier: str, env: str) -> dict[str, Any]:
    """Describe an environment's task sets in a tier. Raises DataError where hashes differ or tasks overlap."""
    settings = env_settings(tier, env)
    names = {"train": settings.train_task_set, "test": settings.test_task_set}
    if settings.validation_task_set:
        names["validation"] = settings.validation_task_set
    ids = {split: {task.id for task in environment_of(env).tasks(name)} for split, name in names.items()}
    for one, other in itertools.combinations(names, 2):
        if both := ids[one] & ids[other]:
            raise DataError(
                f"task sets {names[one]} and {names[other]} share {len(both)} tasks, e.g. {min(both)}; "
                "training tasks must not be tested, nor choices made on either: correct the task sets"
            )
    task_sets = {split: describe_task_set(env, name) for split, name in names.items()}
    return {"schema": 1, "tier": tier, "env": env, "task_sets": task_sets}


def env_settings(tier: str, env: str) -> EnvTierConfig:
    """What an environment uses in a tier. Raises ConfigError where either is unknown or they do not go together."""
    load("tiers", tier, TierConfig)
    return load("envs", env, EnvConfig).in_tier(tier)
