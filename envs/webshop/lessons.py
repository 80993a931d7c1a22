"""What WebShop brings to scripted demonstrations: goals of the synthetic catalogue that are in no split."""

from __future__ import annotations

from envs.lessons import Curriculum
from envs.webshop.demonstrator import ShopBelief
from envs.webshop.dialogue import WebshopDialogue
from envs.webshop.engine import WebshopEngine
from envs.webshop.panels import warmstart_task

CURRICULUM = Curriculum(
    engine=WebshopEngine,
    dialogue=lambda max_turns: WebshopDialogue("compact", max_turns),
    task=warmstart_task,
    begin=lambda task, first: ShopBelief.at_start(first),
    fresh=False,
)
