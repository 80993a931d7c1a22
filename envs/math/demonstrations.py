"""What mathematics brings to scripted demonstrations: templated problems that are in no split."""

from __future__ import annotations

from r3l.envs.math.arithmetic import problem, solution, write
from r3l.envs.math.definitions import definition
from r3l.envs.math.dialogue import create
from r3l.envs.math.engine import response_grader
from r3l.envs.math.options import MathOptions
from r3l.envs.single_answer.demonstrations import AnswerDemonstrator

from r3l.core.task import Task


def demonstrator_of(task_set: str) -> AnswerDemonstrator:
    """The one whose problems have as many operations as those of a task set: from its fewest to its most, in turn."""
    counts = definition(task_set).operations.values()
    fewest, kinds = min(counts), max(counts) - min(counts) + 1

    def task(index: int) -> Task:
        return problem("warmstart", index, fewest + index % kinds)

    return AnswerDemonstrator(
        dialogue=lambda max_turns: create("compact", max_turns, MathOptions()),
        grade=response_grader(MathOptions()),
        task=task,
        solution=solution,
        write=write,
    )
