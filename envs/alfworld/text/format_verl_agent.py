"""verl-agent's dialogue form for ALFWorld: a fresh prompt each turn (protocol ``verl_agent``)."""

from __future__ import annotations

from collections.abc import Iterable

from r3l.envs.alfworld.text.dialogue import AlfworldDialogue, task_sentence, without_help
from r3l.envs.base.format_verl_agent import VerlAgentFormat

from r3l.core.environment import Observation


class VerlAgentDialogue(VerlAgentFormat, AlfworldDialogue):
    """verl-agent's dialogue form for ALFWorld: a new prompt each turn (setting ``history``)."""

    def task_values(self, first: Observation) -> dict[str, str]:
        return {"task": task_sentence(first.text)}

    def action_values(self, now: Observation) -> dict[str, str]:
        return {"admissible": self._listing(now.admissible), "contract": self.prompt("window_contract")}

    def _listing(self, actions: Iterable[str], first_turn: bool = False) -> str:
        return super()._listing(without_help(actions), first_turn)
