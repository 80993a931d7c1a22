"""What mathematics brings to scripted demonstrations: templated problems that are in no split."""

from __future__ import annotations

from r3l.core.task import Task
from r3l.envs.math.arithmetic import problem, solution, write
from r3l.envs.math.dialogue import create
from r3l.envs.math.engine import response_grader
from r3l.envs.math.options import MathOptions
from r3l.envs.single_answer.demonstrations import AnswerDemonstrator


def _task(index: int) -> Task:
    return problem("warmstart", index, 2 + index % 2)


DEMONSTRATOR = AnswerDemonstrator(
    dialogue=lambda max_turns: create("compact", max_turns, MathOptions()),
    grade=response_grader(MathOptions()),
    task=_task,
    solution=solution,
    write=write,
)
