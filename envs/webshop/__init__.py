"""WebShop: the original's shop, pages, search and rewards on a catalogue that all workers share on disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from r3l.core.environment import Dialogue, Environment, EnvironmentPackage
from r3l.core.errors import ConfigError
from r3l.core.task import Task

if TYPE_CHECKING:
    from r3l.core.demonstration import Demonstration

# Everything is imported where it is used: listing environments must not need the engine or numpy.


class WebshopPackage:
    """What the rest of r3l sees of WebShop."""

    name = "webshop"

    def create(self, options: Mapping[str, Any]) -> Environment:
        """A new engine."""
        from envs.webshop.engine import WebshopEngine

        if options:
            raise ConfigError(f"WebShop has no options, found {', '.join(sorted(options))}; remove them")
        return WebshopEngine()

    def dialogue(self, settings: Mapping[str, Any]) -> Dialogue:
        """The text side; ``settings`` has ``style`` and ``max_turns``."""
        from envs.webshop.dialogue import WebshopDialogue

        return WebshopDialogue(str(settings["style"]), int(settings["max_turns"]))

    def tasks(self, panel: str) -> list[Task]:
        """The tasks of ``nano/train``, ``nano/test``, ``official/SPLIT`` or ``r3l/SPLIT``."""
        from envs.webshop.panels import tasks

        return tasks(panel)

    def panel_hash(self, panel: str) -> str:
        """The sha256 of a panel: committed for synthetic ones, of the user's catalogue for the original's."""
        from envs.webshop.panels import committed_hash

        return committed_hash(panel)

    def demonstrations(
        self, indices: Sequence[int], variants: int, max_turns: int, manner: Mapping[str, float]
    ) -> Iterator[Demonstration]:
        """``variants`` scripted demonstrations of each warm-start goal; ``manner`` says how the agents err."""
        from envs.webshop.lessons import Manner, demonstrations

        return demonstrations(indices, variants, Manner(max_turns=max_turns, **manner))


PACKAGE: EnvironmentPackage = WebshopPackage()
