"""What WebShop brings to scripted demonstrations: goals of the synthetic catalogue that are in no split."""

from __future__ import annotations

from r3l.envs.scripted.demonstrations import ScriptedDemonstrator
from r3l.envs.webshop.dialogue import WebshopDialogue
from r3l.envs.webshop.engine import WebshopEngine
from r3l.envs.webshop.expert import WebshopExpert
from r3l.envs.webshop.task_sets import sft_task

DEMONSTRATOR = ScriptedDemonstrator(
    engine=WebshopEngine,
    dialogue=lambda max_turns: WebshopDialogue("compact", max_turns),
    task=sft_task,
    tasks_repeat=True,
    expert=lambda task, first: WebshopExpert.at_start(first),
)
