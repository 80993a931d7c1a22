"""What ScienceWorld brings to scripted demonstrations: a fixed set of solved problems, over and over."""

from __future__ import annotations

from envs.lessons import Curriculum
from envs.scienceworld.demonstrator import ScienceBelief
from envs.scienceworld.dialogue import ScienceWorldDialogue
from envs.scienceworld.engine import create
from envs.scienceworld.options import ScienceWorldOptions
from envs.scienceworld.panels import warmstart_task

CURRICULUM = Curriculum(
    engine=lambda: create(ScienceWorldOptions()),
    dialogue=lambda max_turns: ScienceWorldDialogue("compact", max_turns),
    task=warmstart_task,
    begin=lambda task, first: ScienceBelief.at_start(task.payload["solution"], first),
    fresh=False,
)
