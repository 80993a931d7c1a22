"""What ALFWorld brings to scripted demonstrations: houses of their own, without end."""

from __future__ import annotations

from functools import partial

from r3l.envs.alfworld.dialogue import AlfworldDialogue
from r3l.envs.alfworld.engine import AlfworldEngine
from r3l.envs.alfworld.expert import AlfworldExpert
from r3l.envs.alfworld.goals import parse_goal
from r3l.envs.alfworld.task_sets import sft_task
from r3l.envs.scripted.demonstrations import ScriptedDemonstrator


def demonstrator_of(task_set: str) -> ScriptedDemonstrator:
    """The one whose houses are those of a task set's definition, with seeds that no split has."""
    return ScriptedDemonstrator(
        engine=AlfworldEngine,
        dialogue=lambda max_turns: AlfworldDialogue("compact", max_turns),
        task=partial(sft_task, name=task_set),
        tasks_repeat=False,
        expert=lambda task, first: AlfworldExpert.at_start(parse_goal(str(task.payload["goal_text"])), first),
    )
