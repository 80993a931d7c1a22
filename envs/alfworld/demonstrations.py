"""What ALFWorld brings to scripted demonstrations: houses of their own, without end."""

from __future__ import annotations

from r3l.envs.alfworld.dialogue import AlfworldDialogue
from r3l.envs.alfworld.engine import AlfworldEngine
from r3l.envs.alfworld.expert import HouseBelief
from r3l.envs.alfworld.goals import parse_goal
from r3l.envs.alfworld.task_sets import sft_task
from r3l.envs.scripted.demonstrations import Curriculum

CURRICULUM = Curriculum(
    engine=AlfworldEngine,
    dialogue=lambda max_turns: AlfworldDialogue("compact", max_turns),
    task=sft_task,
    begin=lambda task, first: HouseBelief.at_start(parse_goal(str(task.payload["goal_text"])), first),
    fresh=True,
)
