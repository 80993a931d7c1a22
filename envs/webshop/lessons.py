"""What WebShop brings to scripted demonstrations, and the proof that a goal of the synthetic catalogue can be met."""

from __future__ import annotations

from envs.lessons import CAREFUL, Curriculum, demonstrate
from envs.webshop.demonstrator import ShopBelief
from envs.webshop.dialogue import WebshopDialogue
from envs.webshop.engine import WebshopEngine
from envs.webshop.panels import warmstart_task
from r3l.core.errors import DataError
from r3l.core.pool import Recorded
from r3l.core.task import Task

_PROOF_TURNS = 10  # within which a careful customer must succeed (configs/envs/webshop.yaml, nano)

CURRICULUM = Curriculum(
    engine=WebshopEngine,
    dialogue=lambda max_turns: WebshopDialogue("compact", max_turns),
    task=warmstart_task,
    begin=lambda task, first: ShopBelief.at_start(first),
    fresh=False,
)


def prove(task: Task) -> int:
    """Play ``task`` with a careful customer; its number of turns. Raises DataError where that does not succeed."""
    played = demonstrate(CURRICULUM, Recorded(WebshopEngine()), task, 0, CAREFUL, _PROOF_TURNS)
    if not played.success:
        raise DataError(
            f"task {task.id} is not solved in {_PROOF_TURNS} turns by a careful customer, reward {played.reward:g}: "
            f"{[step.action for step in played.steps]}; change the catalogue in configs/panels"
        )
    return len(played.steps)
