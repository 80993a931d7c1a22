"""An environment package by convention: what r3l sees of ``envs/<name>``, each module imported when first used.

``engine.create(options)``, ``dialogue.create(style, max_turns, options)``, ``task_sets.tasks``,
``task_sets.committed_hash``, and ``demonstrations.CURRICULUM`` where a start model can be taught. Listing environments
so needs no engine, Java or numpy.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from r3l.core.environment import Dialogue, Environment
from r3l.core.task import Task
from r3l.envs.base.options import Options, read_options

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

    def tasks(self, task_set: str) -> list[Task]:
        """The tasks of a task set, e.g. ``nano/test``. Raises DataError when they are not those that were committed."""
        found: list[Task] = self._part("task_sets").tasks(task_set)
        return found

    def task_set_hash(self, task_set: str) -> str:
        """The committed sha256 of a task set."""
        return str(self._part("task_sets").committed_hash(task_set))

    def constant(self, task_set: str) -> Mapping[str, Any]:
        """The best constant answer on a task set and its success (``task_sets.constant``); {} where there is none."""
        found: Mapping[str, Any] = getattr(self._part("task_sets"), "constant", lambda task_set: {})(task_set)
        return found

    def warning(self, task_set: str) -> str:
        """What a reader of scores on a task set must know (``task_sets.WARNINGS``); usually nothing."""
        return str(getattr(self._part("task_sets"), "WARNINGS", {}).get(task_set, ""))

    def demonstrations(
        self, indices: Sequence[int], variants: int, max_turns: int, error_rates: Mapping[str, float]
    ) -> Iterator[Demonstration]:
        """``variants`` scripted demonstrations of each warm-start task; ``error_rates`` says how the agents err."""
        from r3l.envs.scripted.demonstrations import ErrorRates

        found: Iterator[Demonstration] = self._part("demonstrations").CURRICULUM.demonstrations(
            indices, variants, ErrorRates(**error_rates), max_turns
        )
        return found

    def _part(self, module: str) -> Any:
        return importlib.import_module(f"r3l.envs.{self.name}.{module}")
