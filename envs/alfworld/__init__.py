"""ALFWorld household tasks on the real TextWorld PDDL engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from r3l.envs.alfworld.options import AlfworldOptions
from r3l.envs.base.package import Demonstrator, EnvironmentPackage, TaskSets

from r3l.core.environment import Dialogue, Environment, Style


class Alfworld(EnvironmentPackage[AlfworldOptions]):
    """See the package; its engine has no options, its text side has."""

    name, options, extra = "alfworld", AlfworldOptions, "alfworld"
    decisive = ("textworld", "fast-downward-textworld")

    def make_engine(self, options: AlfworldOptions) -> Environment:
        from r3l.envs.alfworld.engine import AlfworldEngine

        return AlfworldEngine()

    def make_dialogue(self, style: Style, max_turns: int, options: AlfworldOptions) -> Dialogue:
        from r3l.envs.alfworld.dialogue import AlfworldDialogue
        from r3l.envs.alfworld.released import ReleasedAlfworldDialogue

        if style == "released":
            return ReleasedAlfworldDialogue(style, max_turns, options.response_format)
        return AlfworldDialogue(style, max_turns, options.response_format, options.list_places)

    def inputs(self, task_sets: Sequence[str]) -> dict[str, str]:
        """Beside the versions of its engine, the texts that make an observation of a state."""
        from r3l.envs.alfworld.games import text_digests

        return super().inputs(task_sets) | text_digests(task_sets)

    def task_sets(self) -> TaskSets:
        from r3l.envs.alfworld import task_sets

        return task_sets

    def build_task_set(self, name: str) -> Path:
        from r3l.envs.alfworld import validate

        return validate.build(name)

    def demonstrator(self) -> Demonstrator:
        return self.demonstrator_of(())

    def demonstrator_of(self, task_sets: Sequence[str]) -> Demonstrator:
        from r3l.envs.alfworld.demonstrations import demonstrator_of

        return demonstrator_of(self.kind_of_task(task_sets))
