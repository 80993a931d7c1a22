"""What ScienceWorld brings to scripted demonstrations: a fixed set of solved problems, over and over."""

from __future__ import annotations

from r3l.envs.scienceworld.dialogue import ScienceWorldDialogue
from r3l.envs.scienceworld.engine import create
from r3l.envs.scienceworld.expert import ScienceWorldExpert
from r3l.envs.scienceworld.options import ScienceWorldOptions
from r3l.envs.scienceworld.task_sets import sft_task
from r3l.envs.scripted.demonstrations import ScriptedDemonstrator

DEMONSTRATOR = ScriptedDemonstrator(
    engine=lambda: create(ScienceWorldOptions()),
    dialogue=lambda max_turns: ScienceWorldDialogue("compact", max_turns),
    task=sft_task,
    tasks_repeat=True,
    expert=lambda task, first: ScienceWorldExpert.at_start(task.payload["solution"], first),
)
