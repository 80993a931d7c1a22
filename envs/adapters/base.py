"""Base of the adapters: tasks are numbers, pivots are reached by replay, texts are the environment's own."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

from pydantic import field_validator
from r3l.envs.base.answers import compact_closing
from r3l.envs.base.package import EnvironmentPackage, Options, read_options
from r3l.envs.base.tagged import TaggedDialogue
from r3l.envs.base.task_sets import DrawnTaskSets

from r3l.core.environment import Critique, Dialogue, Observation, Parsed, Stop, StopReason, Style, Transcript
from r3l.core.errors import ConfigError
from r3l.core.option import option
from r3l.core.task import Task
from r3l.core.text import Message


class AdapterArguments(Options):
    """The key ``arguments`` of configs/envs/<name>.yaml, a file that names an environment of another library.

    Raises ValueError if a split is empty or splits share a task.
    """

    splits: dict[str, tuple[int, int]] = option(
        {"train": (0, 200), "validation": (200, 300), "test": (300, 400)},
        "task numbers of each split: [first, last + 1]",
        "our choice",
    )
    domain: str = option("a task", "subject of the environment, for the prompts of reflections", "our choice")
    solved_at: float = option(1.0, "a task counts as solved from this reward on", "our choice")

    @field_validator("splits")
    @classmethod
    def _disjoint(cls, splits: dict[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
        for name, (first, end) in splits.items():
            if not 0 <= first < end:
                raise ValueError(f"{name} is [{first}, {end}]; it must be [FIRST, END] with 0 <= FIRST < END")
        for (one, a), (other, b) in itertools.combinations(splits.items(), 2):
            if max(a[0], b[0]) < min(a[1], b[1]):
                raise ValueError(f"{one} and {other} share task {max(a[0], b[0])}; splits must be disjoint")
        return splits


ArgumentsT = TypeVar("ArgumentsT", bound=AdapterArguments)


class AdaptedEnvironment(EnvironmentPackage[Options], Generic[ArgumentsT]):
    """An environment of another library; name and ``arguments`` come from a file of configs/envs.

    A subclass sets ``arguments``, the class that validates that key. Raises ConfigError for invalid values.
    """

    options = Options
    arguments: type[ArgumentsT]

    def __init__(self, name: str, given: Mapping[str, Any]) -> None:
        self.name = name
        self.given = read_options(self.arguments, f"{name}.yaml, key arguments", given)

    @abstractmethod
    def payload(self, number: int) -> dict[str, Any]:
        """The contents of task ``number`` without its number, in JSON types; part of the task set's hash.

        Its key ``before``, if any, holds the messages to show before the first observation.
        """

    def task(self, split: str, index: int) -> Task:
        """The task at position ``index`` (from 0) of a split, which has consecutive numbers."""
        number = self.given.splits[split][0] + index
        payload = {"number": number} | self.payload(number)
        return Task(f"{self.name}-{number:06d}", self.name, split, payload=payload)

    def task_sets(self) -> DrawnTaskSets:
        sizes = {name: end - first for name, (first, end) in self.given.splits.items()}
        return DrawnTaskSets(self.name, sizes, self.task)

    def task_set_hash(self, task_set: str) -> str:
        """The sha256 of a task set's tasks as the installed library makes them now; none is committed.

        Raises ConfigError if the library is not installed.
        """
        self.check_installed()
        return super().task_set_hash(task_set)

    def make_dialogue(self, style: Style, max_turns: int, options: Options) -> Dialogue:
        return AdaptedDialogue(self.given.domain, style, max_turns)

    def wrong(self, key: str, value: object, why: str) -> ConfigError:
        """A ConfigError that names file, key and value of an argument; ``why``: the fault, and the fix."""
        return ConfigError(f"{self.name}.yaml, key arguments.{key} is {value!r}: {why}")


class AdaptedDialogue(TaggedDialogue):
    """A ``Dialogue`` that shows the environment's own texts unchanged and takes a response as the action.

    ``stop``: a turn ends with the response (``end``) or with each of its lines (``line``).
    """

    def __init__(self, domain: str, style: Style, max_turns: int, stop: Stop = "end") -> None:
        self.domain = domain
        self.label = domain
        self.stop = stop
        super().__init__(style, max_turns)

    def opening(self, task: Task, first: Observation) -> list[Message]:
        """The environment's messages; the last one is its first observation."""
        before = [Message(m["role"], m["content"]) for m in task.payload.get("before", ())]
        return [*before, Message("user", first.text)]

    def following(self, first: Observation, actions: Sequence[str], now: Observation) -> Message | None:
        """The environment's answer as a user message; None between two lines of a response."""
        return Message("user", now.text) if now.text or self.stop == "end" else None

    def parse(self, response: str, now: Observation, actions: Sequence[str]) -> Parsed:
        """The response itself as the action; never an error."""
        return Parsed(response)

    def closing(
        self,
        reward: float,
        success: bool,
        turns: int,
        error: StopReason | None,
        response: str = "",
    ) -> str:
        """The final feedback: whether the task was completed, the reward and the number of steps.

        After an invalid response it names the reason. The compact style uses the wording on which small
        models for single answers were trained.
        """
        # No turn limit is named, since the environment may have its own limit.
        if error is not None:
            return super().closing(reward, success, turns, error, response)
        if self.style == "compact":
            return compact_closing(success, turns)
        outcome = "completed" if success else "not completed"
        return f"The task was {outcome}. Reward: {reward:.3g}. Steps: {turns}."

    def critique(self, transcript: Transcript) -> Critique | None:
        """None: another library's environments have no critic."""
        return None
