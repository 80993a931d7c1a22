"""Our engines, all in one Java process, against the shipped class with a Java process each: memory and speed.

Both sides play the same episodes: the stored solution of each problem, then actions drawn from the simulator's own
list of valid ones. The environments of a side advance in turn, one step each. Counted: resident memory of the Java
processes at the end, and seconds of starting problems and of stepping. The sides run one after the other, in
processes of their own. Compared at every step: score and ending (texts differ, since the shipped class leaves the
order of objects to chance: see ``envs.scienceworld.jvm``).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import Any

from envs.scienceworld.java import find_java
from envs.scienceworld.panels import sha256_of
from r3l.core.environment import Observation
from r3l.core.errors import DataError
from r3l.core.seeds import generator
from r3l.core.task import Task

TARGETS = {"memory": 10.0, "throughput": 2.0}
Script = tuple[Task, list[str]]


def bench(tasks: Sequence[Task], steps: int, seed: int, envs: int = 8) -> dict[str, Any]:
    """Play ``tasks`` on ``envs`` environments of each side: solution, then ``steps`` random actions each.

    Returns steps per second (starting problems included), seconds of a start and of a step, resident and unshared
    megabytes, the ratios, and on how many observations score and ending agree.
    """
    if not tasks:
        raise DataError("no ScienceWorld tasks to bench")
    scripts = _apart(_scripts, (list(tasks), steps, seed))
    ours = _apart(_measure, ("ours", scripts, envs))
    official = _apart(_measure, ("official", scripts, envs))
    agree = sum(a == b for a, b in zip(ours.pop("outcomes"), official.pop("outcomes"), strict=True))
    ratios = {
        "memory": official["rss_mb"] / ours["rss_mb"],
        "throughput": ours["steps_per_s"] / official["steps_per_s"],
    }
    return {
        "envs": envs,
        "tasks": len(tasks),
        "tasks_sha256": sha256_of(tasks),
        "random_steps": steps,
        "seed": seed,
        "ours": ours,
        "official": official,
        "scores_and_endings": {"compared": ours["observations"], "equal": agree},
        **{
            name: {"ratio": ratios[name], "target": TARGETS[name], "met": ratios[name] >= TARGETS[name]}
            for name in ratios
        },
        "versions": {
            "python": platform.python_version(),
            "java": find_java().version,
            "scienceworld": version("scienceworld"),
        },
        "cpu": {"count": os.cpu_count(), "load_1m": os.getloadavg()[0]},
    }


def _apart(call: Any, arguments: tuple[Any, ...]) -> Any:
    """``call`` in a fresh process, so that no side inherits anything of another."""
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(call, arguments)


def _scripts(tasks: list[Task], steps: int, seed: int) -> list[Script]:
    from envs.scienceworld.engine import ScienceWorldEngine

    engine = ScienceWorldEngine()
    found = []
    for task in tasks:
        rng = generator("bench", seed, task.id)
        actions = list(task.payload.get("solution", ()))
        engine.reset(task)
        for action in actions:
            engine.step(action)
        for _ in range(steps):
            valid = engine.valid_actions()
            actions.append(valid[int(rng.integers(len(valid)))])
            engine.step(actions[-1])
        found.append((task, actions))
    return found


def _measure(side: str, scripts: list[Script], count: int) -> dict[str, Any]:
    began = perf_counter()
    engines = [_engine(side) for _ in range(count)]
    opened = perf_counter() - began
    starts = stepping = 0.0
    outcomes: list[tuple[float, bool, bool]] = []
    for first in range(0, len(scripts), count):
        batch = list(zip(engines, scripts[first : first + count], strict=False))
        began = perf_counter()
        seen = [engine.reset(task) for engine, (task, _) in batch]
        starts += perf_counter() - began
        outcomes += map(_outcome, seen)
        began = perf_counter()
        for turn in range(max(len(actions) for _, (_, actions) in batch)):
            for engine, (_, actions) in batch:
                if turn < len(actions):
                    outcomes.append(_outcome(engine.step(actions[turn])))
        stepping += perf_counter() - began
    memory = _memory(side, engines)
    for engine in engines:
        engine.close()
    steps = len(outcomes) - len(scripts)
    return {
        "open_s": opened,
        "start_s": starts / len(scripts),
        "step_s": stepping / steps,
        "steps_per_s": steps / (starts + stepping),
        "observations": len(outcomes),
        "outcomes": outcomes,
        **memory,
    }


def _engine(side: str) -> Any:
    if side == "official":
        from envs.scienceworld.official import OfficialEnvironment

        return OfficialEnvironment()
    from envs.scienceworld.engine import ScienceWorldEngine

    return ScienceWorldEngine()


def _outcome(now: Observation) -> tuple[float, bool, bool]:
    return now.reward, now.done, now.success


def _memory(side: str, engines: list[Any]) -> dict[str, Any]:
    """Of the side's Java processes: resident (RSS) and unshared (USS) megabytes, threads, and their number."""
    import psutil

    from envs.scienceworld.jvm import shared_jvm

    ids = [e.process_id for e in engines] if side == "official" else [shared_jvm().process.pid]
    processes = [psutil.Process(pid) for pid in ids]
    sizes = [process.memory_full_info() for process in processes]
    return {
        "processes": len(ids),
        "threads": sum(process.num_threads() for process in processes),
        "rss_mb": sum(size.rss for size in sizes) / 1e6,
        "uss_mb": sum(size.uss for size in sizes) / 1e6,
    }


def main() -> None:
    """``python -m envs.scienceworld.bench OUT.json``: bench problems of the nano test panel."""
    from envs.scienceworld.panels import tasks

    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tasks", type=int, default=16)
    parser.add_argument("--envs", type=int, default=8)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    panel = tasks("nano/test")
    chosen = panel[:: max(1, len(panel) // arguments.tasks)][: arguments.tasks]
    result = bench(chosen, arguments.steps, arguments.seed, arguments.envs)
    arguments.out.write_text(json.dumps(result, indent=2, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
