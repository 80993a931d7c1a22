"""Base of scripted experts: correct actions from the texts, deliberate errors, and critiques.

An expert reads only what the policy reads. Each environment has its own ``ScriptedExpert``; the rules of a
critique are shared.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from r3l.core.environment import Critique, Observation, Outcome, Transcript
from r3l.core.errors import ConfigError

NO_CAUSE = "no steps left"  # cause of a failure without a wrong action: the turns ran out
_THEN = ", then "  # between the actions of a suggestion
Answers = Sequence[tuple[str, str]]  # (action, observation after it) of each step; "" if none followed


@dataclass(frozen=True)
class ErrorModel:
    """Error behaviour of one scripted agent.

    ``rate``: share of its actions that are errors. ``systematic``: share of errors that recur in the same
    situation; these are what training must unlearn, since sampling at low temperature hides the others.
    ``overlooks``: it forgets one kind of step, such as cleaning an object.
    """

    rate: float
    systematic: float
    overlooks: bool


@dataclass(frozen=True)
class WrongAction:
    """A turn (from 0) with a wrong action, why it is wrong, and the correct actions from there on.

    ``cause``: why it is wrong, in words. ``complete``: the correction reaches the end of the task. ``fatal``:
    the action ended the episode without success.
    """

    turn: int
    cause: str
    correction: tuple[str, ...]
    complete: bool = False
    fatal: bool = False

    def decides(self, max_turns: int) -> bool:
        """True if the episode failed because of this action.

        Either the action was fatal, or the correction solves the task from this turn on, within
        ``max_turns`` turns of the episode.
        """
        return self.fatal or (self.complete and self.turn + len(self.correction) <= max_turns)


class ScriptedExpert(ABC):
    """A scripted player of one episode, which knows only the texts that it has observed.

    It chooses actions (correct ones, or errors by an error model) and judges other players' actions.
    """

    @abstractmethod
    def observe(self, action: str, text: str) -> None:
        """Take in the observation ``text`` that followed ``action``."""

    @abstractmethod
    def suggested(self) -> list[str]:
        """The correct actions from here on, in order, as far as the texts so far reveal them."""

    @abstractmethod
    def thought(self) -> str:
        """The subgoal of the correct next action in a few words; demonstrations state it before any action.

        It does not change if :meth:`choose` errs.
        """

    def planned(self, action: str) -> str:
        """A thought that names the suggested ``action`` (used with ``plan_thoughts`` of configs/sft).

        A retry is trained on without its hint, so the thought must make sense without one.
        """
        return f"plan: {action}"

    @abstractmethod
    def choose(
        self, now: Observation, actions: Sequence[str], error_model: ErrorModel, rng: np.random.Generator
    ) -> str:
        """The next action, at ``now``, of an agent whose errors follow ``error_model``.

        ``actions``: the earlier ones of the episode, oldest first.
        """

    @abstractmethod
    def check(self, turn: int, action: str, text: str) -> WrongAction | None:
        """Describe what is wrong with the action of ``turn``; None if it was correct.

        ``text``: the observation after the action. :meth:`observe` takes it in later, so the expert still
        knows only what came before the action.
        """

    @abstractmethod
    def summary(self, answers: Answers) -> str:
        """A few words on what happened in the episode, which a reflection states.

        ``answers``: (action, observation after it) of every turn.
        """

    def possible(self, action: str, now: Observation) -> bool:
        """Whether a suggested action can be taken now; True if ``now`` lists no admissible actions."""
        return not now.admissible or action in now.admissible

    def suggested_at_limit(self) -> list[str]:
        """The correct actions at the current turn, which a critique suggests if turns ran out; [] by default.

        It is called at the last turn of an episode in which no action was wrong.
        """
        return []

    def guided(self, error_model: ErrorModel, suggested: Sequence[str]) -> ErrorModel:
        """The error model of an agent that has read the actions ``suggested`` by a critique.

        Here it is ``error_model`` itself; an expert whose agent errs less after a critique overrides this.
        """
        return error_model

    def invalid_action(self, now: Observation, rng: np.random.Generator) -> str:
        """A well-formed action that is impossible now; by default raises ConfigError: there is none."""
        module = type(self).__module__
        raise ConfigError(f"{module} has no invalid actions: set error_rates.invalid to 0 (configs/sft)")

    def likely_turns(self, max_turns: int) -> int:
        """Likely length of an episode in turns, at most and by default ``max_turns``."""
        return max_turns


def having_read(expert: ScriptedExpert, answers: Answers) -> ScriptedExpert:
    """Feed ``answers``, pairs (action, observation after it), to ``expert`` and return it."""
    for action, text in answers:
        expert.observe(action, text)
    return expert


def criticise(expert: ScriptedExpert, transcript: Transcript, max_turns: int) -> Critique:
    """Criticise a finished episode. ``expert`` must be in its initial state; it is modified.

    The critique names the last wrong action that cost the task (``WrongAction.decides``), else the first
    wrong one, and suggests its correction. A failure without a wrong action (turns ran out) is retried from
    its last turn. A success without a wrong action has no suggestion.
    """
    # Replay the episode through the expert and collect its wrong actions.
    answers = transcript.answers
    suggested: list[str] = []
    wrong: list[WrongAction] = []
    summary = expert.summary(answers)
    for turn, (action, text) in enumerate(answers):
        suggested = expert.suggested_at_limit()
        error = expert.check(turn, action, text)
        if error is not None:
            wrong.append(error)
        expert.observe(action, text)
    if transcript.success and not wrong:
        return Critique(Outcome.SUCCESS, summary, "no needless step")
    if not wrong:
        wrong = [WrongAction(len(answers) - 1, NO_CAUSE, tuple(suggested))]

    # Prefer the latest error whose correction saves the episode: its retry keeps the longest prefix.
    decisive = [one for one in wrong if one.decides(max_turns)]
    named = decisive[-1] if decisive else wrong[0]
    outcome = Outcome.INEFFICIENT if transcript.success else Outcome.FAILURE
    suggestion = suggestion_of(named.correction) or "look elsewhere"
    return Critique(outcome, summary, named.cause, suggestion, named.turn)


def suggestion_of(actions: Sequence[str]) -> str:
    """The text of a critique's suggestion to take these actions in order: ``A, then B``."""
    return _THEN.join(actions)


def first_action(suggestion: str) -> str:
    """The first action of a suggestion made by :func:`suggestion_of`."""
    return suggestion.partition(_THEN)[0]
