"""ScienceWorld elementary-science tasks on the real simulator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from r3l.core.environment import Dialogue, Environment, EnvironmentPackage
from r3l.core.task import Task

if TYPE_CHECKING:
    from r3l.core.demonstration import Demonstration

# Everything is imported where it is used: listing environments must need neither Java nor the simulator.


class ScienceWorldPackage:
    """What the rest of r3l sees of ScienceWorld."""

    name = "scienceworld"

    def create(self, options: Mapping[str, Any]) -> Environment:
        """A new engine under ``options`` (see engine.Options); engines of a process share one Java process.

        Raises EngineError without a usable Java or with another release of the simulator than the proved one.
        """
        from envs.scienceworld.engine import ScienceWorldEngine, read_options

        return ScienceWorldEngine(read_options(options))

    def dialogue(self, settings: Mapping[str, Any]) -> Dialogue:
        """The text side; ``settings`` has ``style`` and ``max_turns``."""
        from envs.scienceworld.dialogue import ScienceWorldDialogue

        return ScienceWorldDialogue(str(settings["style"]), int(settings["max_turns"]))

    def tasks(self, panel: str) -> list[Task]:
        """The tasks of ``nano/train``, ``nano/test``, ``r3l/train``, ``r3l/test`` or ``official/train|dev|test``."""
        from envs.scienceworld.panels import tasks

        return tasks(panel)

    def panel_hash(self, panel: str) -> str:
        """The committed sha256 of a panel."""
        from envs.scienceworld.panels import committed_hash

        return committed_hash(panel)

    def demonstrations(
        self, indices: Sequence[int], variants: int, max_turns: int, manner: Mapping[str, float]
    ) -> Iterator[Demonstration]:
        """``variants`` scripted demonstrations of each warm-start problem; ``manner`` says how the agents err."""
        from envs.scienceworld.lessons import Manner, demonstrations

        return demonstrations(indices, variants, Manner(max_turns=max_turns, **manner))


PACKAGE: EnvironmentPackage = ScienceWorldPackage()
