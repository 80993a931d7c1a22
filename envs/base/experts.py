"""What scripted experts share: knowing what is right from the texts, erring, and the critique of a finished episode.

An expert reads only what the policy reads. Each environment brings a ``ScriptedExpert``; the rules of criticising
stand here once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from r3l.core.environment import Critique, Observation, Outcome, Transcript
from r3l.core.errors import ConfigError

NO_CAUSE = "no steps left"  # where no action was wrong, and time ran out
_THEN = ", then "  # between the actions of a suggestion
Answers = Sequence[tuple[str, str]]  # (action, observation after it) of every step; "" where none followed


@dataclass(frozen=True)
class ErrorModel:
    """How one agent errs.

    ``rate``: share of its actions that are errors. ``systematic``: share of the errors that are the same one in the
    same situation; cooler sampling hides the others, these must be unlearnt. ``overlooks``: it overlooks one kind of
    thing.
    """

    rate: float
    systematic: float
    overlooks: bool


@dataclass(frozen=True)
class WrongAction:
    """A turn whose action was not right, and the right actions from there on.

    ``complete``: they go on to the end of the task. ``fatal``: the action ended the episode.
    """

    turn: int
    cause: str
    correction: tuple[str, ...]
    complete: bool = False
    fatal: bool = False

    def decides(self, max_turns: int) -> bool:
        """Whether the correction would have saved the episode: nothing of it is unknown, and it fits the limit."""
        return self.fatal or (self.complete and self.turn + len(self.correction) <= max_turns)


class ScriptedExpert(ABC):
    """What the texts so far say, and what follows from it."""

    @abstractmethod
    def observe(self, action: str, text: str) -> None:
        """Take in the observation ``text`` that followed ``action``."""

    @abstractmethod
    def suggested(self) -> list[str]:
        """The right actions from here on, as far as a reader of the texts knows them."""

    @abstractmethod
    def thought(self) -> str:
        """A short subgoal."""

    def planned(self, action: str) -> str:
        """The thought before a suggested ``action``, where it is to say the action (``plan_thoughts`` of configs/sft).

        A retry is trained on without its hint, so it must be a thought that could stand there without one.
        """
        return f"plan: {action}"

    @abstractmethod
    def choose(
        self, now: Observation, actions: Sequence[str], error_model: ErrorModel, rng: np.random.Generator
    ) -> str:
        """The next action of an agent that errs so, after ``actions``."""

    @abstractmethod
    def check(self, turn: int, action: str, text: str) -> WrongAction | None:
        """What was wrong with ``action``, which ``text`` followed; None where it was right."""

    @abstractmethod
    def summary(self, answers: Answers) -> str:
        """The episode in a few words."""

    def possible(self, action: str, now: Observation) -> bool:
        """Whether a suggested action can be taken now."""
        return not now.admissible or action in now.admissible

    def suggested_at_limit(self) -> list[str]:
        """What a critique suggests at the last turn of an episode that had no wrong action, but too few turns."""
        return []

    def guided(self, error_model: ErrorModel, suggested: Sequence[str]) -> ErrorModel:
        """``error_model`` of an agent that has read the suggestion."""
        return error_model

    def invalid_action(self, now: Observation, rng: np.random.Generator) -> str:
        """An action in the right words that is impossible here."""
        raise ConfigError(f"{type(self).__module__} has no invalid actions: set error_rates.invalid to 0 (configs/sft)")

    def likely_turns(self, max_turns: int) -> int:
        """Turns that an episode is likely to last, at most ``max_turns``."""
        return max_turns


def having_read(expert: ScriptedExpert, answers: Answers) -> ScriptedExpert:
    """``expert`` itself, after the observations of ``answers``."""
    for action, text in answers:
        expert.observe(action, text)
    return expert


def criticise(expert: ScriptedExpert, transcript: Transcript, max_turns: int) -> Critique:
    """The critique of an episode; ``expert`` is that of its start, and is used up.

    It names the last wrong action that decided the episode, else the first wrong one; a failure without any (time ran
    out) is tried again from its last turn.
    """
    answers, suggested, wrong = transcript.answers, list[str](), list[WrongAction]()
    summary = expert.summary(answers)
    for turn, (action, text) in enumerate(answers):
        suggested = expert.suggested_at_limit()
        if error := expert.check(turn, action, text):
            wrong.append(error)
        expert.observe(action, text)
    if transcript.success and not wrong:
        return Critique(Outcome.SUCCESS, summary, "no needless step")
    if not wrong:
        wrong = [WrongAction(len(answers) - 1, NO_CAUSE, tuple(suggested))]
    decisive = [error for error in wrong if error.decides(max_turns)]
    error = decisive[-1] if decisive else wrong[0]
    outcome = Outcome.INEFFICIENT if transcript.success else Outcome.FAILURE
    return Critique(outcome, summary, error.cause, suggestion_of(error.correction) or "look elsewhere", error.turn)


def suggestion_of(actions: Sequence[str]) -> str:
    """A suggestion of these actions, one after the other."""
    return _THEN.join(actions)


def first_action(suggestion: str) -> str:
    """The first action of a critique's suggestion."""
    return suggestion.partition(_THEN)[0]
