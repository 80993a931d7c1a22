"""Environment: the engine side of a problem, and Dialogue: its text side.

An environment knows no method and no model. It is synchronous and runs in a worker process
(``r3l.processes.worker``). Methods see an asynchronous handle of it, which can also restart at a pivot
(``r3l.core.rollout.LiveEnvironment``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Literal, Protocol

from r3l.core.task import Task
from r3l.core.text import Message, well_formed

Style = Literal["full", "compact", "released"]
Stop = Literal["end", "line"]  # a turn of the model is a complete response, or one line of it


class StopReason(StrEnum):
    """Why an episode ended.

    - ``success``, ``done``: the engine ended it, with success and without.
    - ``max_turns``: it reached the limit of turns.
    - ``format``: parse failure: the response has no action.
    - ``inadmissible``: the engine offers no such action.
    - ``repetition``: the same action too often in a row.
    - ``truncated``: a response longer than allowed.
    - ``context``: context full: the dialog no longer fits the model.
    - ``env_failed``: an error inside the environment, which says nothing about the policy.
    """

    SUCCESS = "success"
    DONE = "done"
    MAX_TURNS = "max_turns"
    FORMAT = "format"
    INADMISSIBLE = "inadmissible"
    REPETITION = "repetition"
    TRUNCATED = "truncated"
    CONTEXT = "context"
    ENV_FAILED = "env_failed"

    @property
    def by_engine(self) -> bool:
        """True for success, done, max_turns and env_failed: the episode keeps the engine's reward.

        After any other reason its reward is ``invalid_action_reward`` of the last observation.
        """
        return self in (
            StopReason.SUCCESS,
            StopReason.DONE,
            StopReason.MAX_TURNS,
            StopReason.ENV_FAILED,
        )


# Stop reasons that mean an invalid response.
INVALID_RESPONSES = frozenset({StopReason.FORMAT, StopReason.INADMISSIBLE, StopReason.TRUNCATED})


@dataclass(frozen=True)
class Observation:
    """The engine's answer to ``reset`` or to an action.

    - ``text``: the part that the policy is shown. ``done``: the engine has ended the episode.
    - ``admissible``: the actions that are possible now; empty if the environment has no such list.
    - ``reward``: the reward of the complete episode if it ends here, not the reward of one step.
    - ``success``: whether the task is solved, by the engine's own won or score field, never by ``done``.
    - ``invalid_action_reward``: the episode's reward if an invalid response to this observation ends it.
    - ``refused``: the environment did not carry out the action, because it does not allow it here.
    - ``no_answer``: the action holds nothing that can be graded.
    - ``unrecorded``: number of earlier turns that the next prompt does not list among the actions; 0 except
      in retries by the rules of the released code (docs/audit.md, B-7).
    - ``failed``: error message of an environment that broke down, which ends the episode; else empty.
    """

    text: str
    admissible: tuple[str, ...] = ()
    reward: float = 0.0
    done: bool = False
    success: bool = False
    invalid_action_reward: float = 0.0
    refused: bool = False
    failed: str = ""
    no_answer: bool = False
    unrecorded: int = 0

    def well_formed(self) -> tuple[Observation, int]:
        """A copy with U+FFFD for lone surrogates in ``text`` and ``admissible``, and how many were replaced.

        Returns the observation itself and 0 if there is none.
        """
        text, replaced = well_formed(self.text)
        actions = [well_formed(action) for action in self.admissible]
        replaced += sum(count for _, count in actions)
        if not replaced:
            return self, 0
        return replace(self, text=text, admissible=tuple(action for action, _ in actions)), replaced


class Environment(Protocol):
    """The engine of an environment, which plays one task at a time; ``reset`` starts the next one."""

    def reset(self, task: Task) -> Observation:
        """Start ``task`` and return its first observation.

        Raises DataError if its data is missing or corrupt.
        """
        ...

    def step(self, action: str) -> Observation:
        """Take one action; returns the observation after it."""
        ...

    def snapshot(self) -> Any | None:
        """The current state as an opaque value for ``restore``.

        None if the engine cannot save its state; to return to it, the caller then resets and replays actions.
        """
        ...

    def restore(self, snapshot: Any) -> Observation:
        """Set the engine back to a state saved by ``snapshot`` in this task; returns its observation."""
        ...

    def close(self) -> None:
        """Release the engine's resources. Called when a command ends; an error in it is only a warning."""
        ...


@dataclass(frozen=True)
class Parsed:
    """A parsed response: the action in it, or ``action`` None and in ``error`` why it ends the episode."""

    action: str | None
    error: StopReason | None = None


@dataclass(frozen=True)
class Transcript:
    """A finished episode as an environment's critic reads it.

    ``first``: the first observation. ``answers``: (action, observation after it), oldest first; an invalid
    last response is (response, "") with its reason in ``error``, which is None otherwise.
    """

    task: Task
    first: str
    answers: tuple[tuple[str, str], ...]
    success: bool
    error: StopReason | None


class Outcome(StrEnum):
    """How a finished episode went, as a reflection states it.

    ``success``, ``success_but_inefficient`` or ``failure``.
    """

    SUCCESS = "success"
    INEFFICIENT = "success_but_inefficient"
    FAILURE = "failure"


@dataclass(frozen=True)
class Critique:
    """The judgement of an environment's own critic on a finished episode.

    ``outcome``: how it went; ``summary``: what happened; ``cause``: what went wrong. ``turn`` (from 0): where
    to retry; ``suggestion``: what to do there. Both are None if there is nothing to do better.
    """

    outcome: Outcome
    summary: str
    cause: str
    suggestion: str | None = None
    turn: int | None = None


Prompts = Sequence[Sequence[Message]]  # the messages before each response of an episode


class FeedbackPrompts(Protocol):
    """Prompts of the paper's released code for reflections and critiques in one environment.

    ``r3l.released.prompts`` implements it.
    """

    def log(self, prompts: Prompts, responses: Sequence[str], feedback: str) -> str:
        """A finished episode as a numbered log for a prompt.

        ``prompts``: the messages before each of ``responses``. ``feedback``: the environment's closing
        message, with which the log ends.
        """
        ...

    def reflection(self, log: str) -> list[Message]:
        """The messages that ask for a reflection on an episode, given as the text of :meth:`log`."""
        ...

    def guidance(self, report: Mapping[str, Any]) -> str:
        """The text that guides a retry, made from ``report``, the parsed JSON object of a reflection."""
        ...

    def critique(self, log: str, reward: float) -> list[Message]:
        """The messages that ask for a critique of an episode, given as :meth:`log` and its reward."""
        ...

    def refinement(self, critique: str) -> str:
        """The text that guides a second attempt; it contains the ``critique`` of the first."""
        ...


class Dialogue(Protocol):
    """The text side of an environment: prompts, response parser, rules that end an episode. Stateless.

    - ``domain``: kind of task, as reflection prompts name it ("ALFWorld household tasks").
    - ``max_turns``: turns with an action or an error after which an episode ends.
    - ``style``: ``full`` (complete instructions in our words), ``compact`` (observations only) or
      ``released`` (prompts of the paper's released code; ``release`` has those for reflections and
      critiques).
    - ``stop``: whether a turn is a complete response or one line of it.
    - ``suggestion_optional``: the released code accepts reflections without a suggestion here
      (docs/audit.md, B-41).
    - ``retry_tolerates``: errors that only cost a turn in a retry under the rules ``released_lenient``, as in
      the released code (B-7); empty in most environments.
    - ``lenient``: no response ends an episode; the environment answers every one.
    - ``history``: each turn is a new prompt (``fresh``) that shows that many earlier turns; None: one dialog
      grows.

    The argument ``actions`` holds the actions of the trajectory so far, oldest first.
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
    def release(self) -> FeedbackPrompts | None:
        """The released code's prompts for feedback under ``style: released``, else None."""
        ...

    def opening(self, task: Task, first: Observation) -> list[Message]:
        """The messages before the first response (an optional system message, then one user message)."""
        ...

    def following(self, first: Observation, actions: Sequence[str], now: Observation) -> Message | None:
        """The user message that shows ``now``, the observation after the last of ``actions``.

        ``first``: the episode's first observation. None if the model continues its response (``stop: line``).
        """
        ...

    def fresh(
        self,
        task: Task,
        first: Observation,
        answers: Sequence[tuple[Observation, str, str]],
        now: Observation,
    ) -> list[Message]:
        """All messages of the next prompt, for dialogues with ``history``: every turn begins a new dialog.

        ``answers``: (observation, response to it, action in that response) of the earlier turns, oldest
        first; ``now``: the observation to answer. Not called without ``history``, where :meth:`following`
        adds a message to the dialog; dialogues that do not support it raise NotImplementedError.
        """
        ...

    def parse(self, response: str, now: Observation, actions: Sequence[str]) -> Parsed:
        """Parse a response to the observation ``now`` into an action, or an error that ends the episode."""
        ...

    def tolerated(self, error: StopReason, response: str) -> str:
        """The text shown as the next observation after ``response`` with an error of ``retry_tolerates``."""
        ...

    def closing(
        self,
        reward: float,
        success: bool,
        turns: int,
        error: StopReason | None,
        response: str = "",
    ) -> str:
        """The closing feedback on a finished episode, which a reflection prompt shows.

        ``turns``: number of turns. ``error``: the reason if an invalid response or a full context ended it,
        else None. ``response``: the last response.
        """
        ...

    def critique(self, transcript: Transcript) -> Critique | None:
        """The judgement of the environment's own critic on a finished episode; None without a critic."""
        ...


class EnvironmentFactory(Protocol):
    """Creates the engines of a pool. It is pickled into the worker processes."""

    @property
    def name(self) -> str:
        """Name of the environment, for messages."""
        ...

    def create(self, options: Mapping[str, Any]) -> Environment:
        """Create an engine with these options; called inside a worker process."""
        ...
