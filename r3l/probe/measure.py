"""Measuring the regime of a start model, from its names to the card."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from r3l.algorithm import R3L
from r3l.config import EnvConfig, Run, build_method, environment_of, load, resolve
from r3l.core.errors import ConfigError
from r3l.core.seeds import seed_of
from r3l.core.task import Task
from r3l.files.writing import writable, write_json_atomic
from r3l.local.session import open_session
from r3l.probe.card import CARDS, card
from r3l.probe.play import play_regime

TIER = "nano"


@dataclass(frozen=True)
class Sample:
    """What is played: ``attempts`` at each task of a task set, or at ``tasks`` of them."""

    task_set: str | None = None
    tasks: int | None = None
    attempts: int = 8


def measure_regime(env: str, model: str | None, seed: int, sample: Sample, out: Path | None) -> dict[str, Any]:
    """Play, count, and write the card to ``out``; returns it.

    Raises ConfigError where there is nothing to measure or to measure with.
    """
    run = resolve(TIER, env, "r3l", seed, model)
    method = build_method(run)
    assert isinstance(method, R3L)
    name = _task_set(run, sample.task_set)
    tasks = chosen(environment_of(env).tasks(name), sample.tasks)
    path = out or CARDS / f"{env}.json"
    with writable(path), open_session(run, run.model) as session:
        regime = play_regime(session, method.settings, tasks, sample.attempts)
        content = card(run, load("envs", env, EnvConfig).label, name, regime)
        write_json_atomic(path, content)
    return content


def _task_set(run: Run, asked: str | None) -> str:
    name = asked or run.env_settings.validation_task_set
    if name is None:
        raise ConfigError(f"{run.env} has no validation task set in tier {run.tier}; give --task-set NAME/SPLIT")
    if name in run.env_settings.tested().values():
        raise ConfigError(f"{name} is a test task set, and a regime card is what choices are made by; use another one")
    return name


def chosen(tasks: Sequence[Task], count: int | None) -> list[Task]:
    """``count`` tasks in an order drawn by address, the groups taking turns; all of them without a count."""
    if count is None:
        return list(tasks)
    if count > len(tasks):
        raise ConfigError(f"--tasks is {count}, but the task set has {len(tasks)} tasks")
    groups: dict[str, list[Task]] = {}
    for task in sorted(tasks, key=lambda task: seed_of("regime", "tasks", task.id)):
        groups.setdefault(task.group, []).append(task)
    turns = [(k, group, task) for group, of_group in groups.items() for k, task in enumerate(of_group)]
    return [task for _, _, task in sorted(turns, key=lambda turn: turn[:2])[:count]]
