"""ALFWorld with a fresh prompt each turn (protocol ``verl_agent``)."""

from __future__ import annotations

from collections.abc import Iterable

from r3l.envs.alfworld.text.dialogue import AlfworldDialogue, task_sentence, without_help
from r3l.envs.base.format_verl_agent import Windowed

from r3l.core.environment import Observation


class WindowDialogue(Windowed, AlfworldDialogue):
    """The text side of ALFWorld where ``history`` is set (a ``Dialogue``)."""

    def window_task(self, first: Observation) -> dict[str, str]:
        return {"task": task_sentence(first.text)}

    def asked(self, now: Observation) -> dict[str, str]:
        return {"admissible": self._listing(now.admissible), "contract": self.prompt("window_contract")}

    def _listing(self, actions: Iterable[str], first_turn: bool = False) -> str:
        return super()._listing(without_help(actions), first_turn)
