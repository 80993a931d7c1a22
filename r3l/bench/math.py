"""How fast problems are started and answers graded on the engine; ``r3l bench grader`` measures the grading itself."""

from __future__ import annotations

from typing import Any

from r3l.bench.engines import Played, Script, alone, machine, play, spread
from r3l.core.task import Task
from r3l.envs.math import MathOptions
from r3l.envs.math.arithmetic import solution
from r3l.envs.math.engine import create
from r3l.envs.math.tasks import tasks as tasks_of


def run(task_set: str, *, tasks: int = 0, seed: int = 0) -> dict[str, Any]:
    """Play the worked solutions of so many tasks of ``task_set`` (0: all). Called by ``r3l bench env``."""
    problems = spread(tasks_of(task_set), tasks)
    played = alone(_play, [(task, _lines(task)) for task in problems])
    return {
        **played.headline,
        "tasks": len(problems),
        "seed": seed,
        "solved": sum(bool(success) for _, _, success in played.outcomes),
        "machine": machine(),
    }


def _lines(task: Task) -> list[str]:
    """The worked solution of a templated problem; of others the boxed answer alone."""
    return solution(task) if "operations" in task.payload else [f"\\boxed{{{task.payload['answer']}}}"]


def _play(scripts: list[Script]) -> Played:
    return play(lambda: create(MathOptions()), scripts)
