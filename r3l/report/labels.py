"""What environments and methods are called in print."""

from __future__ import annotations

from r3l import config
from r3l.config import EnvConfig, load, names


def env_label(env: str) -> str:
    """Of an environment; a benchmark that is none of ours keeps its name."""
    return load("envs", env, EnvConfig).label if env in names("envs") else env


def question_set(tier: str, env: str, task_set: str) -> str:
    """The name in print of a task set that runs in ``env`` are scored on; one without a name keeps its own."""
    return load("envs", env, EnvConfig).question_sets.get(tier, {}).get(task_set, task_set)


def method_label(method: str) -> str:
    """Of a method or variant, as its runs have it."""
    return config.method_label(config.variant(method))
