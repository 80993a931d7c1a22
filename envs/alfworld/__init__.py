"""ALFWorld household tasks on the real TextWorld PDDL engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from r3l.core.environment import Dialogue, Environment, EnvironmentPackage
from r3l.core.errors import ConfigError
from r3l.core.task import Task

if TYPE_CHECKING:
    from r3l.core.demonstration import Demonstration

# Everything is imported where it is used: listing environments must not need the engine or numpy.


class AlfworldPackage:
    """What the rest of r3l sees of ALFWorld."""

    name = "alfworld"

    def create(self, options: Mapping[str, Any]) -> Environment:
        """A new engine. Raises EngineError when the installed packages are not the proved releases."""
        from envs.alfworld.engine import AlfworldEngine

        if options:
            raise ConfigError(f"ALFWorld has no options, found {', '.join(sorted(options))}; remove them")
        return AlfworldEngine()

    def dialogue(self, settings: Mapping[str, Any]) -> Dialogue:
        """The text side; ``settings`` has ``style`` and ``max_turns``."""
        from envs.alfworld.dialogue import AlfworldDialogue

        return AlfworldDialogue(str(settings["style"]), int(settings["max_turns"]))

    def tasks(self, panel: str) -> list[Task]:
        """The tasks of ``nano/train``, ``nano/test``, ``valid_seen``, ``valid_unseen`` or ``train``."""
        from envs.alfworld.panels import tasks

        return tasks(panel)

    def panel_hash(self, panel: str) -> str:
        """The committed sha256 of a panel."""
        from envs.alfworld.panels import committed_hash

        return committed_hash(panel)

    def demonstrations(
        self, indices: Sequence[int], variants: int, max_turns: int, manner: Mapping[str, float]
    ) -> Iterator[Demonstration]:
        """``variants`` scripted demonstrations of each warm-start house; ``manner`` says how the agents err."""
        from envs.alfworld.lessons import Manner, demonstrations

        return demonstrations(indices, variants, Manner(max_turns=max_turns, **manner))


PACKAGE: EnvironmentPackage = AlfworldPackage()
