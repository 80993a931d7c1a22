"""The interface of an environment package: the only thing that the rest of r3l uses of ``envs/<name>``.

A package imports its engine, prompts and task sets inside the methods that need them, so that listing
environments imports none of them, and training on one imports nothing of another.
"""

from __future__ import annotations

import hashlib
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
from r3l.core.errors import ConfigError, check_known
from r3l.core.option import OptionModel
from r3l.core.task import Task, check_unique
from r3l.files import requirements
from r3l.files.requirements import Finding

if TYPE_CHECKING:
    from r3l.envs.base.demonstrations import Demonstrator, ScriptedDemonstrator
    from r3l.envs.base.experts import ScriptedExpert
    from r3l.envs.base.task_sets import TaskSets


class Options(OptionModel):
    """Base class of an engine's settings (``options`` of configs/envs/<name>.yaml); by itself it has none.

    An unknown key, and a number that is infinite or NaN, raise pydantic's ValidationError.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


OptionsT = TypeVar("OptionsT", bound=Options)


def read_options(kind: type[OptionsT], env: str, options: Mapping[str, Any]) -> OptionsT:
    """Validate the ``options`` of environment ``env`` as a ``kind``.

    Raises ConfigError naming the key, its value and the allowed ones.
    """
    try:
        return kind.model_validate(dict(options))
    except ValidationError as error:
        mistakes = []
        for mistake in error.errors():
            key = ".".join(map(str, mistake["loc"]))
            mistakes.append(f"{env}.{key} is {mistake['input']!r}: {mistake['msg'].lower()}")
        known = ", ".join(kind.model_fields) or f"none, {env} has no options"
        raise ConfigError(f"{'; '.join(mistakes)}; known keys: {known}") from error


@cache
def installed_version(distribution: str) -> str:
    """The version of an installed distribution as a text; ``"none"`` if it is not installed. Cached."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "none"


def split_and_group(task_set: str) -> tuple[str, str | None]:
    """Split the name of a task set into set and task group: ``nano/test/easy`` -> ``("nano/test", "easy")``.

    The group is None for a name without one, such as ``nano/test``: all tasks.
    """
    parts = task_set.split("/")
    if len(parts) != 3:
        return task_set, None
    return f"{parts[0]}/{parts[1]}", parts[2]


@dataclass(frozen=True)
class ConstantAnswer:
    """The constant answer that solves most tasks: the score of a model that ignores the problem.

    ``success``: its success rate per task group, and for ``all``.
    """

    answer: str
    success: Mapping[str, float]


class EnvironmentPackage(ABC, Generic[OptionsT]):
    """An environment: engine, dialogue and task sets. Stateless; it is pickled into worker processes.

    - ``name``: the name of its folder, by which ``r3l.envs.registry`` finds it
    - ``options``: the class of its engine's settings
    - ``extra``: the extra of pyproject.toml that installs the packages of its engine, if it has one
    - ``version``: raised when a change of its code changes what an episode shows or scores
    - ``decisive``: distributions whose version can change that too

    ``version`` and the versions of ``decisive`` are part of a run's fingerprint.
    """

    name: str
    options: type[OptionsT]
    extra: str | None = None
    version: int = 1
    decisive: tuple[str, ...] = ()

    @abstractmethod
    def make_engine(self, options: OptionsT) -> Environment:
        """Create an engine. Raises EngineError if its packages are missing or have an unsuitable version."""

    @abstractmethod
    def make_dialogue(self, style: Style, max_turns: int, options: OptionsT) -> Dialogue:
        """Create the dialogue: prompts in a ``style``, the parser of responses, and the turn limit.

        ``style``: ``full`` or ``compact`` (both in our words), or ``released`` (the released code's). Raises
        ConfigError for an unknown style or turn limit.
        """

    @abstractmethod
    def task_sets(self) -> TaskSets:
        """The task sets of this environment."""

    def make_demonstrator(self, task_set: str) -> Demonstrator:
        """Source of SFT demonstrations, on tasks that resemble ``task_set`` but are in none of its splits.

        Raises ConfigError if the environment has no demonstrations, which is the default.
        """
        raise ConfigError(f"environment {self.name!r} has no scripted demonstrations to teach a model with")

    def constant_answer(self, task_set: str) -> ConstantAnswer | None:
        """The best constant answer on a task set and its success; None for environments with actions."""
        return None

    def warning(self, task_set: str) -> str:
        """Caveat for scores on a task set, e.g. that its tasks are in another split too; or ""."""
        return ""

    def refused(self, action: str, answer: str) -> bool:
        """Whether ``answer``, the observation after ``action``, says that the engine did not carry it out.

        By default False.
        """
        return False

    def checks(self) -> list[Finding]:
        """Results of further checks for `r3l doctor`, besides the packages and the start of the engine."""
        return []

    # The methods below are the same for every environment.

    def tasks(self, task_set: str) -> list[Task]:
        """The tasks of a task set (``nano/test``) or of one group of it (``nano/test/easy``), sorted by id.

        Underscores replace blanks in a group's name. Raises ConfigError for an unknown task set or group or
        missing packages; DataError if the tasks differ from the committed ones or two share an id.
        """
        self.check_installed()
        split, group = split_and_group(task_set)
        tasks = self.task_sets().tasks(split)
        check_unique(tasks, f"{self.name}/{split}")
        if group is None:
            return tasks
        groups = {task.group.replace(" ", "_") for task in tasks}
        check_known(f"group of {self.name} task set {split}", group, groups)
        return [task for task in tasks if task.group.replace(" ", "_") == group]

    def task_set_hash(self, task_set: str) -> str:
        """The committed sha256 of a task set, read without making its tasks.

        With a group (``nano/test/easy``) it is the sha256 over the task set's hash and the group's name, and
        the name is not checked. Raises ConfigError for an unknown task set.
        """
        split, group = split_and_group(task_set)
        committed = self.task_sets().committed_hash(split)
        return committed if group is None else hashlib.sha256(f"{committed}/{group}".encode()).hexdigest()

    def inputs(self, task_sets: Sequence[str]) -> dict[str, str]:
        """Versions and digests, by name, of all that decides an episode besides task ids and options.

        ``task_sets``: names of the task sets that the run uses; by default the result is the same for all. It
        is part of every run's fingerprint, so it must be cheap to read: no engine is loaded. An input that
        this machine lacks has the value ``none``.
        """
        return {name: installed_version(name) for name in self.decisive}

    def prompt_texts(self) -> dict[str, Path]:
        """Paths of the prompt files by name: those in the package's folder ``prompts``, if it has one."""
        folder = Path(inspect.getfile(type(self))).parent / "prompts"
        return {path.name: path for path in folder.glob("*.txt")}

    def check_installed(self) -> None:
        """Raise ConfigError with the install command if packages of ``extra`` are missing."""
        if self.extra:
            requirements.require(self.extra, f"environment {self.name!r}")

    def create(self, options: Mapping[str, Any]) -> Environment:
        """Create an engine with ``options``, after a check that its packages are installed.

        Raises ConfigError for wrong options or missing packages, and EngineError for a package in an
        unsuitable version.
        """
        checked = read_options(self.options, self.name, options)
        self.check_installed()
        return self.make_engine(checked)

    def dialogue(self, style: Style, max_turns: int, options: Mapping[str, Any] | None = None) -> Dialogue:
        """The dialogue with ``options``; ``style``: ``full``, ``compact`` or ``released``.

        Raises ConfigError for a wrong option, style or turn limit.
        """
        return self.make_dialogue(style, max_turns, read_options(self.options, self.name, options or {}))

    def demonstrator(self, task_sets: Sequence[str] = ()) -> Demonstrator:
        """The demonstrator of an SFT recipe that names ``task_sets``, by default ``nano``.

        Raises ConfigError if the environment has no demonstrations, or for several task sets (an environment
        that mixes task sets overrides this).
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
        """A demonstrator that plays ``expert`` with the compact dialogue and default options.

        ``task(k)``: SFT task k. ``expert(task, first observation)``: a new expert for an episode.
        ``tasks_repeat``: two numbers may give the same task.
        """
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
        """``variants`` demonstrations of each SFT task whose number is in ``indices``.

        Each is by a scripted agent whose errors are drawn separately. ``error_rates``: the fields of
        ``base.demonstrations.ErrorRates``. ``task_sets``: the task sets that the demonstrations' tasks
        resemble, by default ``nano``; several only if the environment can mix them. Demonstrations are played
        when the iterator asks for them, all variants of a task in a row. Raises ConfigError at once if the
        environment's packages are missing, if it has no demonstrations, or if it cannot mix ``task_sets``.
        """
        from r3l.envs.base.demonstrations import ErrorRates

        self.check_installed()
        return self.demonstrator(task_sets).demonstrations(
            indices,
            variants,
            ErrorRates(**error_rates),
            max_turns,
        )

    def expert_demonstrations(self, tasks: Sequence[Task], max_turns: int) -> Iterator[Demonstration]:
        """One demonstration of an error-free expert per task. Raises ConfigError if there is no expert."""
        return self.demonstrator().expert_demonstrations(tasks, max_turns)
