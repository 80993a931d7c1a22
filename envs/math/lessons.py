"""What mathematics brings to scripted demonstrations: templated problems that are in no split."""

from __future__ import annotations

from envs.answer_lessons import AnswerCurriculum
from envs.math.arithmetic import problem, solution, write
from envs.math.dialogue import create
from envs.math.engine import judge
from envs.math.options import MathOptions
from r3l.core.task import Task


def _task(index: int) -> Task:
    return problem("warmstart", index, 2 + index % 2)


CURRICULUM = AnswerCurriculum(
    dialogue=lambda max_turns: create("compact", max_turns, MathOptions()),
    judge=judge(MathOptions()),
    task=_task,
    solution=solution,
    write=write,
)
