"""Our engines, all in one Java process, against the shipped class with a Java process each: memory and speed.

Both sides play the same episodes: the stored solution of each problem, then actions drawn from the simulator's own
list of valid ones. The environments of a side advance in turn, one step each. Counted: resident memory of the Java
processes at the end, and seconds of starting problems and of stepping. The sides run one after the other, in
processes of their own. Compared at every step: score and ending (texts differ, since the shipped class leaves the
order of objects to chance: see ``r3l.envs.scienceworld.jvm``).
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from r3l.bench.engines import Played, Script, alone, machine, play, spread
from r3l.core.errors import DataError
from r3l.core.seeds import generator
from r3l.core.task import Task
from r3l.envs.scienceworld.jvm import find_java
from r3l.envs.scienceworld.tasks import sha256_of
from r3l.envs.scienceworld.tasks import tasks as tasks_of

TARGETS = {"memory": 10.0, "throughput": 2.0}


def run(task_set: str, *, tasks: int = 16, steps: int = 10, seed: int = 0, envs: int = 8) -> dict[str, Any]:
    """``bench`` on so many tasks of ``task_set`` (0: all). Called by ``r3l bench env``, which offers the keywords."""
    return bench(spread(tasks_of(task_set), tasks), steps, seed, envs)


def bench(tasks: Sequence[Task], steps: int, seed: int, envs: int = 8) -> dict[str, Any]:
    """Play ``tasks`` on ``envs`` environments of each side: solution, then ``steps`` random actions each.

    Returns ours in the words of ``r3l.bench.engines``, both sides in full, the ratios, and on how many observations
    score and ending agree.
    """
    if not tasks:
        raise DataError("no ScienceWorld tasks to bench")
    java = find_java()
    scripts = alone(_scripts, list(tasks), steps, seed)
    ours, official = alone(_ours, scripts, envs), alone(_official, scripts, envs)
    agree = sum(a == b for a, b in zip(ours.outcomes, official.outcomes, strict=True))
    ratios = {
        "memory": official.children["rss_mb"] / ours.children["rss_mb"],
        "throughput": ours.headline["steps_per_s"] / official.headline["steps_per_s"],
    }
    return {
        **ours.headline,
        **{
            name: {"ratio": ratios[name], "target": TARGETS[name], "met": ratios[name] >= TARGETS[name]}
            for name in ratios
        },
        "scores_and_endings": {"compared": len(ours.outcomes), "equal": agree},
        "envs": envs,
        "tasks": len(tasks),
        "tasks_sha256": sha256_of(tasks),
        "random_steps": steps,
        "seed": seed,
        "ours": ours.report(),
        "official": official.report(),
        "versions": {"java": java.version, "scienceworld": version("scienceworld")},
        "machine": machine(),
    }


def _scripts(tasks: list[Task], steps: int, seed: int) -> list[Script]:
    from r3l.envs.scienceworld.engine import ScienceWorldEngine

    engine = ScienceWorldEngine()
    scripts: list[Script] = []
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
        scripts.append((task, actions))
    return scripts


def _ours(scripts: list[Script], envs: int) -> Played:
    from r3l.envs.scienceworld.engine import ScienceWorldEngine

    return play(ScienceWorldEngine, scripts, envs)


def _official(scripts: list[Script], envs: int) -> Played:
    from r3l.envs.scienceworld.official import OfficialEnvironment

    return play(OfficialEnvironment, scripts, envs)
