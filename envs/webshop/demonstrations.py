"""What WebShop brings to scripted demonstrations: goals of the synthetic catalogue that are in no split."""

from __future__ import annotations

from r3l.envs.scripted.demonstrations import Curriculum
from r3l.envs.webshop.dialogue import WebshopDialogue
from r3l.envs.webshop.engine import WebshopEngine
from r3l.envs.webshop.expert import ShopBelief
from r3l.envs.webshop.task_sets import sft_task

CURRICULUM = Curriculum(
    engine=WebshopEngine,
    dialogue=lambda max_turns: WebshopDialogue("compact", max_turns),
    task=sft_task,
    begin=lambda task, first: ShopBelief.at_start(first),
    fresh=False,
)
