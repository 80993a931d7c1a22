"""ALFWorld household tasks on the real TextWorld PDDL engine."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from r3l.envs.base.package import EnvironmentPackage
from r3l.envs.base.tagged import TaggedOptions

from r3l.core.environment import Dialogue, Environment, Style
from r3l.core.option import option

if TYPE_CHECKING:
    from r3l.envs.alfworld.tasks import AlfworldTaskSets
    from r3l.envs.base.demonstrations import ScriptedDemonstrator


class AlfworldOptions(TaggedOptions):
    """Settings of the text side; its engine has none."""

    list_places: bool = option(
        False,
        "whether a compact prompt ends with the places that one can go to; full prompts list every admissible action",
        "our choice: a small model that is shown them seldom walks to where it is, or to what this house lacks",
    )


class Alfworld(EnvironmentPackage[AlfworldOptions]):
    """Houses of our own, made without end, and the published games where a user has them."""

    name, options, extra = "alfworld", AlfworldOptions, "alfworld"
    decisive = ("textworld", "fast-downward-textworld")

    def make_engine(self, options: AlfworldOptions) -> Environment:
        from r3l.envs.alfworld.engine import AlfworldEngine

        return AlfworldEngine()

    def make_dialogue(self, style: Style, max_turns: int, options: AlfworldOptions) -> Dialogue:
        from r3l.envs.alfworld.dialogue import AlfworldDialogue, ReleasedAlfworldDialogue

        if style == "released":
            return ReleasedAlfworldDialogue(style, max_turns, options.response_format)
        return AlfworldDialogue(style, max_turns, options.response_format, options.list_places)

    def inputs(self, task_sets: Sequence[str]) -> dict[str, str]:
        """Beside the versions of its engine, the texts that make an observation of a state."""
        from r3l.envs.alfworld.games import text_digests

        return super().inputs(task_sets) | text_digests(task_sets)

    def task_sets(self) -> AlfworldTaskSets:
        from r3l.envs.alfworld.tasks import TASK_SETS

        return TASK_SETS

    def make_demonstrator(self, task_set: str) -> ScriptedDemonstrator:
        from r3l.envs.alfworld.expert import expert_of

        return self.scripted_demonstrator(partial(self.task_sets().spare_task, task_set), expert_of)


ENVIRONMENT = Alfworld()
