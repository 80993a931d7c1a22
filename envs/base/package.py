"""The one template that every environment fills in: what r3l sees of a package of ``envs/``.

A package imports its engine, prompts and task sets inside the methods that need them, so that listing environments
imports none, and training on one imports nothing of another.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol

from r3l.envs.base.options import OptionsT, read_options

from r3l.core import extras
from r3l.core.benchmark import Benchmark
from r3l.core.demonstration import Demonstration
from r3l.core.environment import Dialogue, Environment, Style
from r3l.core.errors import ConfigError
from r3l.core.finding import Finding
from r3l.core.task import Task

if TYPE_CHECKING:
    from r3l.envs.scripted.demonstrations import ErrorRates


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


class Demonstrator(Protocol):
    """Scripted demonstrations on tasks that are in no task set."""

    def demonstrations(
        self, indices: Sequence[int], variants: int, error_rates: ErrorRates, max_turns: int
    ) -> Iterator[Demonstration]:
        """``variants`` demonstrations of each task of ``indices``."""
        ...

    def careful(self, tasks: Sequence[Task], max_turns: int) -> Iterator[Demonstration]:
        """What an expert without errors does in each task."""
        ...


class TaskSets(Protocol):
    """What the module ``task_sets`` of an environment has (see EnvironmentPackage)."""

    def tasks(self, task_set: str) -> list[Task]:
        """The tasks of a task set."""
        ...

    def committed_hash(self, task_set: str) -> str:
        """The committed sha256 of a task set."""
        ...


@dataclass(frozen=True)
class BenchmarkOptions:
    """How questions are put and graded (options of `r3l evaluate --set`). ``data``: folder of the question sets."""

    protocol: str = "standard"
    prompt: str = "boxed"
    oracle: str = "ours"
    data: Path | None = None


class EnvironmentPackage(ABC, Generic[OptionsT]):
    """An environment: engine, text side, task sets, and what else it has. Stateless; pickles into worker processes.

    ``name`` is the name of its folder and in ``r3l.envs.registry``; ``options`` declares the settings of its engine;
    ``extra`` is the extra of pyproject.toml that brings the packages of its engine, where those are in one.
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
        """Its module of task sets."""

    @abstractmethod
    def build_task_set(self, name: str) -> Path:
        """Validate every task of a task set and write the file that is committed; its path."""

    def tasks(self, task_set: str) -> list[Task]:
        """The tasks of a task set, e.g. ``nano/test``, sorted by id.

        Raises ConfigError for an unknown task set, DataError where its tasks are not those that were committed.
        """
        self.check_installed()
        return self.task_sets().tasks(task_set)

    def task_set_hash(self, task_set: str) -> str:
        """The committed sha256 of a task set, without making its tasks."""
        return self.task_sets().committed_hash(task_set)

    def inputs(self, task_sets: Sequence[str]) -> dict[str, str]:
        """What decides an episode of ``task_sets`` beside task ids and options, by name: a version or a digest.

        A part of every fingerprint, so it loads no engine; what is not on this machine is ``none``.
        """
        return {name: installed_version(name) for name in self.decisive}

    def constant_answer(self, task_set: str) -> ConstantAnswer | None:
        """What the best constant answer scores on a task set; None where answers are actions."""
        return None

    def warning(self, task_set: str) -> str:
        """What a reader of scores on a task set must know, e.g. that its tasks are in another split; mostly ''."""
        return ""

    def demonstrator(self) -> Demonstrator:
        """What start models are taught from. Raises ConfigError where nothing is scripted."""
        raise ConfigError(f"environment {self.name!r} has no scripted demonstrations to teach a model with")

    def demonstrator_of(self, task_sets: Sequence[str]) -> Demonstrator:
        """The one for some task sets' kinds of task, where an environment has several kinds, else ``demonstrator``.

        Raises ConfigError where ``task_sets`` are not what the environment's recipes name.
        """
        if task_sets:
            raise ConfigError(
                f"environment {self.name!r} has one kind of task to teach, so its SFT recipe names no task_sets, "
                f"not {list(task_sets)}; remove the key"
            )
        return self.demonstrator()

    def kind_of_task(self, task_sets: Sequence[str]) -> str:
        """The task set whose kind of task a recipe teaches, ``nano`` by default. Raises ConfigError for several."""
        if len(task_sets) > 1:
            raise ConfigError(
                f"an SFT recipe of environment {self.name!r} teaches the tasks of one task set, not of "
                f"{list(task_sets)}; keep one"
            )
        return next(iter(task_sets), "nano")

    def careful(self, tasks: Sequence[Task], max_turns: int) -> Iterator[Demonstration]:
        """What a scripted expert without errors does in each task. Raises ConfigError where nothing is scripted."""
        return self.demonstrator().careful(tasks, max_turns)

    def benchmark(self, options: BenchmarkOptions) -> Benchmark:
        """Question sets with known answers. Raises ConfigError where there are none."""
        raise ConfigError(f"environment {self.name!r} has no question sets; math has")

    def check_installed(self) -> None:
        """Raise ConfigError, with the command that installs them, where packages of its extra are missing."""
        if self.extra:
            extras.require(self.extra, f"environment {self.name!r}")

    def checks(self) -> list[Finding]:
        """What `r3l doctor` checks beside the packages and the start of the engine."""
        return []

    def check(self, options: Mapping[str, Any]) -> None:
        """Raise ConfigError, naming key, value and what is allowed, where ``options`` are wrong."""
        self._read(options)

    def create(self, options: Mapping[str, Any]) -> Environment:
        """A new engine under ``options``; raises what ``check``, ``check_installed`` and ``make_engine`` do."""
        checked = self._read(options)
        self.check_installed()
        return self.make_engine(checked)

    def dialogue(self, style: Style, max_turns: int, options: Mapping[str, Any] | None = None) -> Dialogue:
        """The text side under ``options``; raises what ``check`` and ``make_dialogue`` do."""
        return self.make_dialogue(style, max_turns, self._read(options or {}))

    def demonstrations(
        self,
        indices: Sequence[int],
        variants: int,
        max_turns: int,
        error_rates: Mapping[str, float],
        task_sets: Sequence[str] = (),
    ) -> Iterator[Demonstration]:
        """``variants`` demonstrations of each task of ``indices``; ``error_rates``: see scripted.demonstrations."""
        from r3l.envs.scripted.demonstrations import ErrorRates

        self.check_installed()
        demonstrator = self.demonstrator_of(task_sets)
        return demonstrator.demonstrations(indices, variants, ErrorRates(**error_rates), max_turns)

    def _read(self, options: Mapping[str, Any]) -> OptionsT:
        return read_options(self.options, self.name, options)
