"""The one template that every environment fills in: what r3l sees of a package of ``envs/``.

A package imports its engine, prompts and task sets inside the methods that need them, so that listing environments
imports none, and training on one imports nothing of another.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic import ConfigDict, ValidationError

from r3l.core.demonstration import Demonstration
from r3l.core.environment import Dialogue, Environment, Style
from r3l.core.errors import ConfigError
from r3l.core.option import OptionModel
from r3l.core.task import Task, check_unique
from r3l.files import requirements
from r3l.files.requirements import Finding

if TYPE_CHECKING:
    from r3l.envs.base.demonstrations import Demonstrator, ScriptedDemonstrator
    from r3l.envs.base.experts import ScriptedExpert
    from r3l.envs.base.task_sets import TaskSets


class Options(OptionModel):
    """Base of an engine's settings (``options`` of configs/envs/<name>.yaml); as it stands, of one that has none."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


OptionsT = TypeVar("OptionsT", bound=Options)


def read_options(kind: type[OptionsT], env: str, options: Mapping[str, Any]) -> OptionsT:
    """``options`` checked. Raises ConfigError naming the key, its value and what is allowed."""
    try:
        return kind.model_validate(dict(options))
    except ValidationError as error:
        wrong = "; ".join(
            f"{env}.{'.'.join(map(str, e['loc']))} is {e['input']!r}: {e['msg'].lower()}" for e in error.errors()
        )
        known = ", ".join(kind.model_fields) or f"none, {env} has no options"
        raise ConfigError(f"{wrong}; known keys: {known}") from error


@cache
def installed_version(distribution: str) -> str:
    """The version of a distribution; ``none`` where it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "none"


@dataclass(frozen=True)
class ConstantAnswer:
    """The best answer that looks at no problem. ``success``: its rate in each task group, and in ``all`` tasks."""

    answer: str
    success: Mapping[str, float]


class EnvironmentPackage(ABC, Generic[OptionsT]):
    """An environment: engine, text side, task sets, and what else it has. Stateless; pickles into worker processes.

    ``name`` is the name of its folder, by which ``r3l.envs.registry`` finds it; ``options`` declares the settings of
    its engine; ``extra`` is the extra of pyproject.toml that brings the packages of its engine, if there is one.
    ``version`` is raised when its code changes what an episode shows or scores; with the versions of ``decisive``, the
    distributions that decide so too, it stands in the fingerprints of runs.
    """

    name: str
    options: type[OptionsT]
    extra: str | None = None
    version: int = 1
    decisive: tuple[str, ...] = ()

    @abstractmethod
    def make_engine(self, options: OptionsT) -> Environment:
        """A new engine. Raises EngineError where its packages are missing or unsuitable."""

    @abstractmethod
    def make_dialogue(self, style: Style, max_turns: int, options: OptionsT) -> Dialogue:
        """The text side. Raises ConfigError for an unknown style or turn limit."""

    @abstractmethod
    def task_sets(self) -> TaskSets:
        """Its task sets."""

    def make_demonstrator(self, task_set: str) -> Demonstrator:
        """What base checkpoints are taught from: tasks as those of ``task_set``, but in none of its splits."""
        raise ConfigError(f"environment {self.name!r} has no scripted demonstrations to teach a model with")

    def constant_answer(self, task_set: str) -> ConstantAnswer | None:
        """What the best constant answer scores on a task set; None where answers are actions."""
        return None

    def warning(self, task_set: str) -> str:
        """What a reader of scores on a task set must know, e.g. that its tasks are in another split; mostly ''."""
        return ""

    def refused(self, action: str, answer: str) -> bool:
        """Whether the engine's answer says that it did not carry out an action, where its observation does not."""
        return False

    def checks(self) -> list[Finding]:
        """What `r3l doctor` checks beside the packages and the start of the engine."""
        return []

    # What follows is the same for every environment.

    def tasks(self, task_set: str) -> list[Task]:
        """The tasks of a task set, e.g. ``nano/test``, sorted by id.

        Raises ConfigError for an unknown task set, DataError where its tasks are not those that were committed, or
        where two have one id.
        """
        self.check_installed()
        tasks = self.task_sets().tasks(task_set)
        check_unique(tasks, f"{self.name}/{task_set}")
        return tasks

    def task_set_hash(self, task_set: str) -> str:
        """The committed sha256 of a task set, without making its tasks."""
        return self.task_sets().committed_hash(task_set)

    def inputs(self, task_sets: Sequence[str]) -> dict[str, str]:
        """What decides an episode of ``task_sets`` beside task ids and options, by name: a version or a digest.

        A part of every fingerprint, so it loads no engine; what is not on this machine is ``none``.
        """
        return {name: installed_version(name) for name in self.decisive}

    def prompt_texts(self) -> dict[str, Path]:
        """The files that its full prompts are made of, by name: those of its folder ``prompts``, where it has one."""
        folder = Path(inspect.getfile(type(self))).parent / "prompts"
        return {path.name: path for path in folder.glob("*.txt")}

    def check_installed(self) -> None:
        """Raise ConfigError, with the command that installs them, where packages of its extra are missing."""
        if self.extra:
            requirements.require(self.extra, f"environment {self.name!r}")

    def create(self, options: Mapping[str, Any]) -> Environment:
        """A new engine under ``options``; raises what ``read_options``, ``check_installed`` and ``make_engine`` do."""
        checked = self._read(options)
        self.check_installed()
        return self.make_engine(checked)

    def dialogue(self, style: Style, max_turns: int, options: Mapping[str, Any] | None = None) -> Dialogue:
        """The text side under ``options``; raises what ``read_options`` and ``make_dialogue`` do."""
        return self.make_dialogue(style, max_turns, self._read(options or {}))

    def demonstrator(self, task_sets: Sequence[str] = ()) -> Demonstrator:
        """What an SFT recipe that names ``task_sets`` teaches; without any, tasks as those of ``nano``.

        Raises ConfigError where nothing is scripted, or for several task sets unless the environment mixes them.
        """
        if len(task_sets) > 1:
            raise ConfigError(
                f"an SFT recipe of environment {self.name!r} teaches the tasks of one task set, not of "
                f"{list(task_sets)}; keep one"
            )
        return self.make_demonstrator(next(iter(task_sets), "nano"))

    def scripted_demonstrator(
        self,
        task: Callable[[int], Task],
        expert: Callable[[Task, str], ScriptedExpert],
        tasks_repeat: bool = False,
    ) -> ScriptedDemonstrator:
        """A demonstrator on this environment's engine and compact dialogue, both with default options."""
        from r3l.envs.base.demonstrations import ScriptedDemonstrator

        return ScriptedDemonstrator(self, task, tasks_repeat, expert)

    def demonstrations(
        self,
        indices: Sequence[int],
        variants: int,
        max_turns: int,
        error_rates: Mapping[str, float],
        task_sets: Sequence[str] = (),
    ) -> Iterator[Demonstration]:
        """``variants`` demonstrations of each task of ``indices``; ``error_rates``: see ``base.demonstrations``."""
        from r3l.envs.base.demonstrations import ErrorRates

        self.check_installed()
        return self.demonstrator(task_sets).demonstrations(indices, variants, ErrorRates(**error_rates), max_turns)

    def careful(self, tasks: Sequence[Task], max_turns: int) -> Iterator[Demonstration]:
        """What an error-free expert does in each task. Raises ConfigError where nothing is scripted."""
        return self.demonstrator().careful(tasks, max_turns)

    def _read(self, options: Mapping[str, Any]) -> OptionsT:
        return read_options(self.options, self.name, options)
