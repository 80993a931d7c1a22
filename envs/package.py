"""An environment package by convention: what r3l sees of ``envs/<name>``, each module imported when first used.

``engine.create(options)``, ``dialogue.create(style, max_turns, options)``, ``panels.tasks``, ``panels.committed_hash``,
and ``lessons.CURRICULUM`` where a start model can be taught. Listing environments so needs no engine, Java or numpy.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from envs.options import Options, read_options
from r3l.core.environment import Dialogue, Environment
from r3l.core.task import Task

if TYPE_CHECKING:
    from r3l.core.demonstration import Demonstration


@dataclass(frozen=True)
class Package:
    """An ``EnvironmentPackage`` whose parts lie in the modules of ``envs/<name>``."""

    name: str
    options: type[Options] = Options

    def check(self, options: Mapping[str, Any]) -> None:
        """Raise ConfigError, naming key, value and what is allowed, where ``options`` are wrong."""
        read_options(self.options, self.name, options)

    def create(self, options: Mapping[str, Any]) -> Environment:
        """A new engine under ``options``. Raises ConfigError for an unknown option, EngineError for a wrong install."""
        engine: Environment = self._part("engine").create(read_options(self.options, self.name, options))
        return engine

    def dialogue(self, settings: Mapping[str, Any]) -> Dialogue:
        """The text side; ``settings`` has ``style``, ``max_turns`` and the engine's ``options``."""
        options = read_options(self.options, self.name, settings.get("options", {}))
        found: Dialogue = self._part("dialogue").create(str(settings["style"]), int(settings["max_turns"]), options)
        return found

    def tasks(self, panel: str) -> list[Task]:
        """The tasks of a panel, e.g. ``nano/test``. Raises DataError when they are not those that were committed."""
        found: list[Task] = self._part("panels").tasks(panel)
        return found

    def panel_hash(self, panel: str) -> str:
        """The committed sha256 of a panel."""
        return str(self._part("panels").committed_hash(panel))

    def constant(self, panel: str) -> Mapping[str, Any]:
        """The best constant answer on a panel and its success (``panels.constant``); {} where there is none."""
        found: Mapping[str, Any] = getattr(self._part("panels"), "constant", lambda panel: {})(panel)
        return found

    def caution(self, panel: str) -> str:
        """What a reader of scores on a panel must know (``panels.CAUTIONS``); usually nothing."""
        return str(getattr(self._part("panels"), "CAUTIONS", {}).get(panel, ""))

    def demonstrations(
        self, indices: Sequence[int], variants: int, max_turns: int, manner: Mapping[str, float]
    ) -> Iterator[Demonstration]:
        """``variants`` scripted demonstrations of each warm-start task; ``manner`` says how the agents err."""
        from envs.lessons import Manner

        found: Iterator[Demonstration] = self._part("lessons").CURRICULUM.demonstrations(
            indices, variants, Manner(**manner), max_turns
        )
        return found

    def _part(self, module: str) -> Any:
        return importlib.import_module(f"envs.{self.name}.{module}")
