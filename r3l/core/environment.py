"""Environment: the engine side of a problem, and Dialogue: its text side.

An environment knows no method and no model. It is synchronous and lives in a worker process
(``r3l.processes.worker``); what a method sees is the asynchronous handle, which adds restarting at a pivot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Literal, Protocol

from r3l.core.task import Task
from r3l.core.text import Message, well_formed

Style = Literal["full", "compact", "released"]
Stop = Literal["end", "line"]  # where a turn of the model ends: with its response, or after each line of it


class StopReason(StrEnum):
    """Why an episode ended: by its engine (``by_engine``), by a rule of the dialogue, or for want of room."""

    SUCCESS = "success"
    DONE = "done"  # the engine ended it without success
    MAX_TURNS = "max_turns"
    FORMAT = "format"  # no action could be read
    INADMISSIBLE = "inadmissible"  # the engine offers no such action
    REPETITION = "repetition"  # the same action too often in a row
    TRUNCATED = "truncated"  # a response longer than allowed
    CONTEXT = "context"  # the dialog outgrew the model's context

    @property
    def by_engine(self) -> bool:
        """Whether the engine's own reward counts."""
        return self in (StopReason.SUCCESS, StopReason.DONE, StopReason.MAX_TURNS)


@dataclass(frozen=True)
class Observation:
    """What the engine answers. ``admissible`` is empty where an environment has no such list.

    ``success`` comes from the engine's own won/score field, never from ``done``. ``invalid_action_reward`` is the
    episode's reward if a rule of the dialogue ends it here (an invalid response). ``refused``: the action that it
    answers was not carried out, since the environment does not allow it here. ``unread``: nothing to grade was found in
    that action. ``failed``: what went wrong inside the environment, which ends the episode.
    """

    text: str
    admissible: tuple[str, ...] = ()
    reward: float = 0.0
    done: bool = False
    success: bool = False
    invalid_action_reward: float = 0.0
    refused: bool = False
    failed: str = ""
    unread: bool = False

    def well_formed(self) -> tuple[Observation, int]:
        """It with U+FFFD for what is not Unicode, and how many characters were replaced."""
        (text, count), actions = well_formed(self.text), [well_formed(action) for action in self.admissible]
        count += sum(n for _, n in actions)
        return (replace(self, text=text, admissible=tuple(a for a, _ in actions)) if count else self), count


class Environment(Protocol):
    """One live problem at a time. ``reset`` may be called again with another task."""

    def reset(self, task: Task) -> Observation:
        """Start ``task``. Raises DataError when its data is missing or corrupt."""
        ...

    def step(self, action: str) -> Observation: ...

    def snapshot(self) -> Any | None:
        """An opaque mark of the present state, or None where only replaying can come back to it."""
        ...

    def restore(self, snapshot: Any) -> Observation:
        """Return to ``snapshot`` of the current task; the observation that was current then."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Parsed:
    """A response read by an environment's rules: an action, or the reason why there is none."""

    action: str | None
    error: StopReason | None = None


@dataclass(frozen=True)
class Transcript:
    """A finished episode as a critic reads it. ``answers``: (action, observation after it), oldest first.

    An invalid last response stands there as (response, "") with its reason in ``error``.
    """

    task: Task
    first: str
    answers: tuple[tuple[str, str], ...]
    success: bool
    error: StopReason | None


class Outcome(StrEnum):
    """How a finished episode went."""

    SUCCESS = "success"
    INEFFICIENT = "success_but_inefficient"
    FAILURE = "failure"


@dataclass(frozen=True)
class Critique:
    """What an environment's own critic says of a finished episode.

    ``turn`` (0-based) is the turn to try again from and ``suggestion`` what to do there; both are None where nothing
    needs improving.
    """

    outcome: Outcome
    summary: str
    cause: str
    suggestion: str | None = None
    turn: int | None = None


Prompts = Sequence[Sequence[Message]]  # what was shown before each response


class FeedbackPrompts(Protocol):
    """The release's own words for what methods say in one environment (``r3l.original.prompts``)."""

    def log(self, prompts: Prompts, responses: Sequence[str], feedback: str) -> str:
        """An episode as numbered text."""
        ...

    def reflection(self, log: str) -> list[Message]:
        """The request for a reflection on a logged episode."""
        ...

    def guidance(self, report: Mapping[str, Any]) -> str:
        """The guidance of a retry, from the JSON object of a reflection."""
        ...

    def critique(self, log: str, reward: float) -> list[Message]:
        """The request for a critique of a logged episode."""
        ...

    def refinement(self, critique: str) -> str:
        """The guidance of a second attempt under a critique."""
        ...


class Dialogue(Protocol):
    """How an environment talks: prompts, the reading of responses, and its ending rules. Stateless.

    ``actions`` are the actions taken so far in the trajectory, oldest first. ``style``: ``full`` (whole instructions,
    in our words), ``compact`` (observations only) or ``released`` (the release's own words, which ``release`` has for
    methods); reflection prompts follow it. ``stop``: what a turn is, a whole
    response or a line of one. ``suggestion_optional``: the release takes reflections without a suggestion here
    (audit B-41). ``retry_tolerates``: the errors that cost a retry of the released code no more than a turn (B-7); none
    in most environments. ``lenient``: no response ends an episode, however it is written: each is a turn that the
    environment answers. ``history``: each turn is a fresh prompt (``fresh``) that shows so many turns before it; None:
    messages are added to one dialog.
    """

    domain: str
    suggestion_optional: bool
    style: Style
    max_turns: int
    stop: Stop
    retry_tolerates: frozenset[StopReason]
    lenient: bool
    history: int | None

    @property
    def release(self) -> FeedbackPrompts | None: ...

    def opening(self, task: Task, first: Observation) -> list[Message]:
        """The messages before the first response (an optional system message, then one user message)."""
        ...

    def following(self, first: Observation, actions: Sequence[str], now: Observation) -> Message | None:
        """The user message that shows ``now`` after ``actions``; None where the next line of the response follows."""
        ...

    def fresh(
        self, task: Task, first: Observation, answers: Sequence[tuple[Observation, str, str]], now: Observation
    ) -> list[Message]:
        """All messages before the next response, where ``history`` is set. ``answers``: (observation, response, action
        read in it)."""
        ...

    def parse(self, response: str, now: Observation, actions: Sequence[str]) -> Parsed:
        """Read a response: an action, or an error that ends the episode."""
        ...

    def closing(self, reward: float, success: bool, turns: int, error: StopReason | None, response: str = "") -> str:
        """The final feedback on an ended episode, as the reflection shows it. ``response``: the last one."""
        ...

    def critique(self, transcript: Transcript) -> Critique | None:
        """What the environment's own critic says of a finished episode; None where there is no critic for it."""
        ...


class EnvironmentFactory(Protocol):
    """What makes the engines of a pool. It is pickled into the worker processes."""

    @property
    def name(self) -> str: ...

    def create(self, options: Mapping[str, Any]) -> Environment:
        """A new engine under ``options``; called inside a worker process."""
        ...
