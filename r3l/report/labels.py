"""Printed names of environments, methods and seeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from r3l import config
from r3l.config import EnvConfig, load, names


def env_label(env: str) -> str:
    """Printed name of an environment; unknown names are kept."""
    return load("envs", env, EnvConfig).label if env in names("envs") else env


def bench_label(bench: tuple[str, str, str], among: Iterable[tuple[str, str, str]]) -> str:
    """The environment of a (tier, environment, model), with the tier or the model where ``among`` has several
    of it."""
    alike = {other for other in among if other[1] == bench[1]}
    parts = [bench[k] for k in (0, 2) if len({other[k] for other in alike}) > 1]
    return ", ".join([env_label(bench[1]), *parts])


def question_set(tier: str, env: str, task_set: str) -> str:
    """The name in print of a task set that runs in ``env`` are scored on; one without a name keeps its
    own."""
    return load("envs", env, EnvConfig).question_sets.get(tier, {}).get(task_set, task_set)


def method_label(method: str) -> str:
    """Printed name of a method or variant, as its runs record it."""
    return config.method_label(config.variant(method))


def ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers, three and more in a row by the first and the last: 0 to 4, 7, 8."""
    rows: list[list[int]] = []
    for number in numbers:
        if rows and number == rows[-1][-1] + 1:
            rows[-1].append(number)
        else:
            rows.append([number])
    return ", ".join(f"{row[0]} to {row[-1]}" if len(row) > 2 else ", ".join(map(str, row)) for row in rows)
