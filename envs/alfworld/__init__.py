"""ALFWorld: household tasks on the real TextWorld PDDL engine."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from r3l.envs.alfworld.options import AlfworldOptions
from r3l.envs.base.package import EnvironmentPackage
from r3l.envs.base.tagged import check_released

from r3l.core.environment import Dialogue, Environment, Style
from r3l.core.errors import ConfigError

if TYPE_CHECKING:
    from r3l.envs.alfworld.task_sets.tasks import AlfworldTaskSets
    from r3l.envs.base.demonstrations import ScriptedDemonstrator


class Alfworld(EnvironmentPackage[AlfworldOptions]):
    """ALFWorld: procedurally generated houses, and the published games if a user has downloaded them."""

    name = "alfworld"
    options = AlfworldOptions
    extra = "alfworld"
    decisive = ("textworld", "fast-downward-textworld")

    def make_engine(self, options: AlfworldOptions) -> Environment:
        from r3l.envs.alfworld.engine.text_engine import AlfworldEngine

        return AlfworldEngine()

    def make_dialogue(self, style: Style, max_turns: int, options: AlfworldOptions) -> Dialogue:
        from r3l.envs.alfworld.text.dialogue import AlfworldDialogue, ReleasedAlfworldDialogue
        from r3l.envs.alfworld.text.format_agentbench import AgentBenchDialogue
        from r3l.envs.alfworld.text.format_agentgym import AgentGymDialogue
        from r3l.envs.alfworld.text.format_react import ReactDialogue
        from r3l.envs.alfworld.text.format_trinity import TrinityDialogue
        from r3l.envs.alfworld.text.format_verl_agent import VerlAgentDialogue

        if style == "released":
            released = check_released("alfworld", options, {"list_places"})
            return ReleasedAlfworldDialogue(style, max_turns, released)

        # Protocols differ in their settings: each form of dialogue is chosen by its typical one.
        by_format = {
            "labelled": AgentBenchDialogue,
            "last_label": AgentGymDialogue,
            "opened": TrinityDialogue,
        }
        kind: type[AlfworldDialogue] | None = by_format.get(options.response_format)
        if options.history is not None and (kind or options.turn == "line"):
            raise ConfigError("alfworld: history needs turns in tags; remove it, or change turn")
        if options.turn == "line":
            kind = ReactDialogue
        elif kind is None:
            kind = AlfworldDialogue if options.history is None else VerlAgentDialogue
        return kind(style, max_turns, options)

    def refused(self, action: str, answer: str) -> bool:
        return answer == "Nothing happens." and not action.startswith("think:")

    def inputs(self, task_sets: Sequence[str]) -> dict[str, str]:
        """Versions of the engine, and digests of the texts that turn a state into an observation."""
        from r3l.envs.alfworld.engine.games import text_digests

        return super().inputs(task_sets) | text_digests(task_sets)

    def task_sets(self) -> AlfworldTaskSets:
        from r3l.envs.alfworld.task_sets.tasks import TASK_SETS

        return TASK_SETS

    def make_demonstrator(self, task_set: str) -> ScriptedDemonstrator:
        from r3l.envs.alfworld.expert import expert_of

        return self.scripted_demonstrator(partial(self.task_sets().spare_task, task_set), expert_of)


ENVIRONMENT = Alfworld()
