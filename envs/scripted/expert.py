"""What scripted agents share: a expert from observed texts, how they err, and the review of a finished episode.

An agent reads only what the policy reads. Each environment brings a ``ScriptedExpert``; the rules of reviewing stand
here once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from r3l.core.environment import Critique, Observation, Outcome, Transcript
from r3l.core.errors import ConfigError

Answers = Sequence[tuple[str, str]]  # (action, observation after it) of every step; "" where none followed


@dataclass(frozen=True)
class ErrorModel:
    """How an agent errs. ``slip``: rate of actions that are not right; ``forgets``: overlooks one kind of thing.

    ``habit``: share of slips that are the same one in the same situation. Diffuse slips vanish when sampling is
    cooled; habits must be unlearnt.
    """

    slip: float
    habit: float
    forgets: bool


@dataclass(frozen=True)
class Mistake:
    """A turn whose action was not a right one, and what would have been right there.

    ``complete``: ``better`` goes on to the end of the task. ``fatal``: it ended the episode, so it is the pivot.
    """

    turn: int
    cause: str
    better: tuple[str, ...]
    complete: bool = False
    fatal: bool = False

    def decisive(self, max_turns: int) -> bool:
        """Without it the episode could have been saved: everything left was known and still fitted the limit."""
        return self.fatal or (self.complete and self.turn + len(self.better) <= max_turns)


class ScriptedExpert(ABC):
    """What the texts so far say, and what follows from it."""

    @abstractmethod
    def see(self, action: str, text: str) -> None:
        """Take in the observation that answered ``action``."""

    @abstractmethod
    def hint(self) -> list[str]:
        """The right actions from here on, as far as a reader of the texts knows them."""

    @abstractmethod
    def thought(self) -> str:
        """A short subgoal."""

    @abstractmethod
    def choose(self, now: Observation, actions: Sequence[str], who: ErrorModel, rng: np.random.Generator) -> str:
        """The agent's next action: a right one, or with rate ``slip`` another."""

    @abstractmethod
    def mistake(self, turn: int, action: str, text: str) -> Mistake | None:
        """What was wrong with ``action``, which ``text`` answered; None where it was right."""

    @abstractmethod
    def summary(self, answers: Answers) -> str:
        """The episode in a few words."""

    def possible(self, action: str, now: Observation) -> bool:
        """Whether a hinted action can be taken now."""
        return not now.admissible or action in now.admissible

    def out_of_time(self) -> list[str]:
        """What a review suggests at the last turn of an episode without a mistake."""
        return []

    def reminded(self, who: ErrorModel, hint: Sequence[str]) -> ErrorModel:
        """The agent's error model while it follows ``hint``."""
        return who

    def blunder(self, now: Observation, rng: np.random.Generator) -> str:
        """An action in the right words that is impossible here."""
        raise ConfigError(f"{type(self).__module__} knows no blunders; set error_rates.blunder to 0 (configs/sft)")

    def blunder_turns(self, max_turns: int) -> int:
        """A blunder happens before this turn."""
        return max_turns


def after(expert: ScriptedExpert, answers: Answers) -> ScriptedExpert:
    """``expert`` having read ``answers``."""
    for action, text in answers:
        expert.see(action, text)
    return expert


def criticise(expert: ScriptedExpert, transcript: Transcript, max_turns: int) -> Critique:
    """The critique of an episode; ``expert`` is that of its start, and is used up.

    It names the last decisive mistake, else the first mistake; a failure without one (time ran out) is tried again
    from its last turn.
    """
    answers, suggestion, mistakes = transcript.answers, list[str](), list[Mistake]()
    summary = expert.summary(answers)
    for turn, (action, text) in enumerate(answers):
        suggestion = expert.out_of_time()
        if mistake := expert.mistake(turn, action, text):
            mistakes.append(mistake)
        expert.see(action, text)
    if transcript.success and not mistakes:
        return Critique(Outcome.SUCCESS, summary, "no needless step")
    if not mistakes:
        mistakes = [Mistake(len(answers) - 1, "no steps left", tuple(suggestion))]
    decisive = [mistake for mistake in mistakes if mistake.decisive(max_turns)]
    pivot = decisive[-1] if decisive else mistakes[0]
    outcome = Outcome.INEFFICIENT if transcript.success else Outcome.FAILURE
    return Critique(outcome, summary, pivot.cause, ", then ".join(pivot.better) or "look elsewhere", pivot.turn)
