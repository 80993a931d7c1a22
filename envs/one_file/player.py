"""The scripted player of an environment in one file, as the expert that errs, criticises and demonstrates."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from r3l.envs.scripted.expert import Answers, ErrorModel, ScriptedExpert, WrongAction

from r3l.core.environment import Observation

Player = Callable[[str, Answers], list[str]]  # see OneFileEnvironment.good_actions


class ErringPlayer(ScriptedExpert):
    """``player`` at its first observation; its errors are admissible actions that it would not take."""

    def __init__(self, player: Player, first: str) -> None:
        self._player, self._first = player, first
        self._answers: list[tuple[str, str]] = []

    def observe(self, action: str, text: str) -> None:
        """Remember."""
        self._answers.append((action, text))

    def suggested(self) -> list[str]:
        """The best action."""
        return self._player(self._first, self._answers)[:1]

    def suggested_at_limit(self) -> list[str]:
        """The best action."""
        return self.suggested()

    def thought(self) -> str:
        """Always the same."""
        return "next"

    def choose(
        self, now: Observation, actions: Sequence[str], error_model: ErrorModel, rng: np.random.Generator
    ) -> str:
        """The best action, or with the error rate another one: a systematic error is the first of them."""
        good = self._player(self._first, self._answers)
        others = [action for action in now.admissible if action not in good]
        if not others or rng.random() >= error_model.rate:
            return good[0]
        return others[0] if rng.random() < error_model.systematic else others[int(rng.integers(len(others)))]

    def check(self, turn: int, action: str, text: str) -> WrongAction | None:
        """Wrong is what the player would not have done."""
        good = self._player(self._first, self._answers)
        return None if action in good else WrongAction(turn, f"{action} does not help", tuple(good[:1]))

    def summary(self, answers: Answers) -> str:
        """How long it was."""
        return f"{len(answers)} actions"
