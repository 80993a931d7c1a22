"""What mathematics brings to scripted demonstrations: templated problems that are in no split."""

from __future__ import annotations

from r3l.core.task import Task
from r3l.envs.math.arithmetic import problem, solution, write
from r3l.envs.math.dialogue import create
from r3l.envs.math.engine import judge
from r3l.envs.math.options import MathOptions
from r3l.envs.single_answer.demonstrations import AnswerCurriculum


def _task(index: int) -> Task:
    return problem("warmstart", index, 2 + index % 2)


CURRICULUM = AnswerCurriculum(
    dialogue=lambda max_turns: create("compact", max_turns, MathOptions()),
    judge=judge(MathOptions()),
    task=_task,
    solution=solution,
    write=write,
)
