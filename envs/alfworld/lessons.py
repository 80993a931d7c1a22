"""What ALFWorld brings to scripted demonstrations: houses of their own, without end."""

from __future__ import annotations

from envs.alfworld.demonstrator import HouseBelief
from envs.alfworld.dialogue import AlfworldDialogue
from envs.alfworld.engine import AlfworldEngine
from envs.alfworld.goals import parse_goal
from envs.alfworld.panels import warmstart_task
from envs.lessons import Curriculum

CURRICULUM = Curriculum(
    engine=AlfworldEngine,
    dialogue=lambda max_turns: AlfworldDialogue("compact", max_turns),
    task=warmstart_task,
    begin=lambda task, first: HouseBelief.at_start(parse_goal(str(task.payload["goal_text"])), first),
    fresh=True,
)
