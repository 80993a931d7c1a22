"""The package of an environment in one file: its tasks are drawn by number, its text side and its demonstrations made.

`examples/guess.py` is one.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from r3l.envs.base.options import Options
from r3l.envs.base.package import Demonstrator, EnvironmentPackage
from r3l.envs.base.task_sets import sha256_of
from r3l.envs.one_file.dialogue import OneFileDialogue
from r3l.envs.one_file.player import Player
from r3l.envs.scripted.expert import Answers

from r3l.core.environment import Dialogue, Style
from r3l.core.errors import ConfigError
from r3l.core.seeds import generator
from r3l.core.task import Task


@dataclass(frozen=True)
class DrawnTaskSets:
    """Task sets without a committed file: ``draw`` of a split and a number makes each task. ``sizes`` by split."""

    env: str
    sizes: Mapping[str, int]
    draw: Callable[[str, int], Task]

    def tasks(self, task_set: str) -> list[Task]:
        """The tasks of a split."""
        if task_set not in self.sizes:
            raise ConfigError(f"{self.env} task set {task_set!r} is unknown; it has {', '.join(self.sizes)}")
        return sorted((self.draw(task_set, k) for k in range(self.sizes[task_set])), key=lambda task: task.id)

    def committed_hash(self, task_set: str) -> str:
        """The sha256 of the tasks as they are drawn now."""
        return sha256_of(self.tasks(task_set))


class OneFileEnvironment(EnvironmentPackage[Options]):
    """Subclasses bring ``name`` (that of the file), ``domain`` and ``rules`` for prompts, the engine, and problems.

    ``sizes``: how many tasks the splits have. With ``good_actions`` it has a critic and scripted demonstrations too.
    """

    options = Options
    domain: str
    rules: str
    sizes: Mapping[str, int] = {"train": 200, "test": 100}

    @abstractmethod
    def problem(self, rng: np.random.Generator) -> dict[str, Any]:
        """A problem: the payload of a task, as JSON has it."""

    def good_actions(self, first: str, answers: Answers) -> list[str]:
        """The actions that a good player takes now, the best one first; none: nobody knows.

        The player reads what the policy reads: the first observation, and (action, observation after it) of every turn.
        """
        return []

    def task(self, split: str, number: int) -> Task:
        """The problem of this number, the same on every machine."""
        payload = self.problem(generator(self.name, split, number))
        return Task(f"{self.name}-{split}-{number:05d}", self.name, split, payload=payload)

    def task_sets(self) -> DrawnTaskSets:
        """Its splits."""
        return DrawnTaskSets(self.name, self.sizes, self.task)

    def build_task_set(self, name: str) -> Path:
        """Raises ConfigError: there is no file."""
        raise ConfigError(f"the tasks of {self.name} are drawn by its code, so there is no task set to build")

    def make_dialogue(self, style: Style, max_turns: int, options: Options) -> Dialogue:
        """The text side."""
        return OneFileDialogue(self.domain, self.rules, self._player(), style, max_turns)

    def demonstrator(self) -> Demonstrator:
        """Of the scripted player, on tasks of the split ``sft``. Raises ConfigError where there is no player."""
        from r3l.envs.one_file.player import ErringPlayer
        from r3l.envs.scripted.demonstrations import ScriptedDemonstrator

        player = self._player()
        if player is None:
            return super().demonstrator()
        return ScriptedDemonstrator(
            engine=partial(self.make_engine, Options()),
            dialogue=lambda max_turns: self.make_dialogue("compact", max_turns, Options()),
            task=partial(self.task, "sft"),
            tasks_repeat=False,
            expert=lambda task, first: ErringPlayer(player, first),
        )

    def _player(self) -> Player | None:
        has_one = type(self).good_actions is not OneFileEnvironment.good_actions
        return self.good_actions if has_one else None
