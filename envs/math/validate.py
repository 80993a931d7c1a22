"""Proves a task set of generated problems: the engine accepts each one's solution; then the file to commit is
written."""

from __future__ import annotations

from pathlib import Path

from r3l.core.errors import DataError
from r3l.core.task import Task
from r3l.envs.base.task_sets import commit, summary
from r3l.envs.math.arithmetic import solution
from r3l.envs.math.definitions import ENV, definition
from r3l.envs.math.engine import judge
from r3l.envs.math.options import MathOptions
from r3l.envs.math.task_sets import generated
from r3l.envs.single_answer.engine import AnswerEngine
from r3l.runs.progress import tracked


def build(name: str) -> Path:
    """Prove every problem of a task set and write the file that is committed."""
    splits = {split: generated(name, split) for split in definition(name).splits}
    for split, found in splits.items():
        for task in tracked(found, f"proving {name}/{split}"):
            prove(task)
    return commit(ENV, name, {"task_set": name, "splits": {split: summary(found) for split, found in splits.items()}})


def prove(task: Task) -> None:
    """Raise DataError unless the engine accepts the solution of ``task``."""
    engine = AnswerEngine(MathOptions(), judge(MathOptions()))
    engine.reset(task)
    for line in solution(task):
        now = engine.step(line)
    if not now.success:
        raise DataError(f"task {task.id}: its solution {solution(task)} is not accepted")
