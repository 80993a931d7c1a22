"""What ALFWorld brings to scripted demonstrations: houses of their own, without end."""

from __future__ import annotations

from r3l.envs.alfworld.dialogue import AlfworldDialogue
from r3l.envs.alfworld.engine import AlfworldEngine
from r3l.envs.alfworld.expert import AlfworldExpert
from r3l.envs.alfworld.goals import parse_goal
from r3l.envs.alfworld.task_sets import sft_task
from r3l.envs.scripted.demonstrations import ScriptedDemonstrator

DEMONSTRATOR = ScriptedDemonstrator(
    engine=AlfworldEngine,
    dialogue=lambda max_turns: AlfworldDialogue("compact", max_turns),
    task=sft_task,
    tasks_repeat=False,
    expert=lambda task, first: AlfworldExpert.at_start(parse_goal(str(task.payload["goal_text"])), first),
)
