"""``r3l bench env``: speed and memory of an environment's engine; the same measurement for every environment.

The actions are those of the environment's error-free expert, followed by random admissible ones. They are found in one
process and played in another, whose memory is then the engine's own, with the processes that it starts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from multiprocessing import get_context
from time import perf_counter
from typing import Any, TypeVar

import psutil

from r3l.config import EnvTierConfig, environment_of
from r3l.core.errors import ConfigError
from r3l.core.seeds import generator
from r3l.core.task import Task

T = TypeVar("T")
Script = tuple[Task, list[str]]  # a task and the actions to play in it


def bench_env(env: str, settings: EnvTierConfig, tasks: int, steps: int, seed: int) -> dict[str, Any]:
    """Play ``tasks`` of the test task set (0: all), each with the expert's actions and ``steps`` random ones.

    ``steps_per_s`` counts the time of starting tasks; ``reset_ms``, ``step_ms`` and ``restore_ms`` (back to the middle
    of an episode; None where an engine can only replay) are means; ``rss_mb``: resident memory, 10^6 bytes.
    """
    from r3l.bench.measuring import machine  # imports torch, which the processes that play are to have no part of

    chosen = spread(environment_of(env).tasks(settings.test_task_set), tasks)
    scripts = _in_fresh_process(_scripts, env, settings, chosen, steps, seed)
    played = _in_fresh_process(_play, env, settings, scripts)
    return {**played, "env": env, "task_set": settings.test_task_set, "tasks": len(chosen), "machine": machine()}


def spread(tasks: Sequence[Task], count: int) -> list[Task]:
    """``count`` of ``tasks``, evenly spread; 0: all. Raises ConfigError if there are fewer."""
    if count > len(tasks):
        raise ConfigError(f"--tasks is {count}, but the task set has {len(tasks)} tasks; ask for at most that many")
    return [tasks[k * len(tasks) // count] for k in range(count)] if count else list(tasks)


def _in_fresh_process(call: Callable[..., T], *arguments: Any) -> T:
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(call, arguments)


def _scripts(env: str, settings: EnvTierConfig, tasks: list[Task], steps: int, seed: int) -> list[Script]:
    package = environment_of(env)
    try:
        demonstrations = {d.task.id: d for d in package.careful(tasks, settings.max_turns)}
    except ConfigError:  # nothing is scripted
        demonstrations = {}
    engine = package.create(settings.options)
    scripts: list[Script] = []
    for task in tasks:
        draws, now = generator("bench", seed, task.id), engine.reset(task)
        actions = [step.action for step in demonstrations[task.id].steps] if task.id in demonstrations else []
        for action in actions:
            now = engine.step(action)
        for _ in range(steps):
            if now.done or not now.admissible:
                break
            actions.append(now.admissible[int(draws.integers(len(now.admissible)))])
            now = engine.step(actions[-1])
        if not actions:
            raise ConfigError(f"environment {env!r} has neither an expert nor a list of admissible actions to play")
        scripts.append((task, actions))
    engine.close()
    return scripts


def _play(env: str, settings: EnvTierConfig, scripts: list[Script]) -> dict[str, Any]:
    began = perf_counter()
    engine = environment_of(env).create(settings.options)
    first, actions = scripts[0]
    engine.reset(first)
    for action in actions:
        engine.step(action)
    opening = perf_counter() - began  # with what is imported, compiled or started by the first task
    resets, stepped, restores = [], [], list[float]()
    solved = 0
    for task, actions in scripts:
        began = perf_counter()
        now = engine.reset(task)
        resets.append(perf_counter() - began)
        mark = None
        for number, action in enumerate(actions):
            if number == len(actions) // 2:
                mark = engine.snapshot()
            began = perf_counter()
            now = engine.step(action)
            stepped.append(perf_counter() - began)
        solved += now.success
        if mark is not None:
            began = perf_counter()
            engine.restore(mark)
            restores.append(perf_counter() - began)
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    resident = sum(process.memory_info().rss for process in processes)
    engine.close()
    return {
        "steps_per_s": len(stepped) / (sum(resets) + sum(stepped)),
        "reset_ms": 1e3 * sum(resets) / len(resets),
        "step_ms": 1e3 * sum(stepped) / len(stepped),
        "restore_ms": 1e3 * sum(restores) / len(restores) if restores else None,
        "rss_mb": resident / 1e6,
        "open_s": opening,
        "steps": len(stepped),
        "solved": solved,
    }
