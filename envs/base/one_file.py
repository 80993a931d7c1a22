"""An environment in one file, in the package or outside it: the engine and the rules are its own, the rest is here.

Its tasks are drawn by number, its text side and its demonstrations are made. `examples/guess.py` is one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from r3l.envs.base.action_parsers import each_tag_once
from r3l.envs.base.experts import Answers, ErrorModel, ScriptedExpert, WrongAction, criticise
from r3l.envs.base.package import EnvironmentPackage, Options
from r3l.envs.base.tagged import TaggedDialogue, repeats
from r3l.envs.base.task_sets import DrawnTaskSets

from r3l.core.environment import Critique, Dialogue, Observation, Parsed, StopReason, Style, Transcript
from r3l.core.seeds import generator
from r3l.core.task import Task
from r3l.core.text import Message
from r3l.core.validation import TEXTS, checked_payload, wrong

FORMAT = "Answer with <think>...</think> and one <action>...</action>."
Player = Callable[[str, Answers], list[str]]  # see OneFileEnvironment.good_actions


class OneFileEngine(ABC):
    """An ``Environment`` that is restarted at a pivot by playing its actions again, so it must be deterministic."""

    @abstractmethod
    def reset(self, task: Task) -> Observation:
        """Start ``task``, whose payload is what ``OneFileEnvironment.problem`` drew."""

    @abstractmethod
    def step(self, action: str) -> Observation:
        """Apply one action, of those that the last observation admits where it lists any."""

    def snapshot(self) -> object | None:
        """None: actions are played again."""
        return None

    def restore(self, snapshot: object) -> Observation:
        """Never called: there are no snapshots."""
        raise NotImplementedError

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """Release what is held."""


class OneFileEnvironment(EnvironmentPackage[Options]):
    """Subclasses bring ``name`` (that of the file), ``domain`` and ``rules`` for prompts, the engine, and problems.

    ``sizes``: how many tasks the splits have. With ``good_actions`` it has a critic and scripted demonstrations too.
    """

    options = Options
    domain: str
    rules: str
    sizes: Mapping[str, int] = {"train": 200, "test": 100}

    @abstractmethod
    def problem(self, rng: np.random.Generator) -> dict[str, Any]:
        """A problem: the payload of a task, as JSON has it."""

    def good_actions(self, first: str, answers: Answers) -> list[str]:
        """The actions that a good player takes now, the best one first; none: nobody knows.

        The player reads what the policy reads: the first observation, and (action, observation after it) of every turn.
        """
        return []

    def task(self, split: str, number: int) -> Task:
        """The problem of this number, the same on every machine."""
        payload = checked_payload(self.name, self.problem(generator(self.name, split, number)))
        return Task(f"{self.name}-{split}-{number:05d}", self.name, split, payload=payload)

    def task_sets(self) -> DrawnTaskSets:
        return DrawnTaskSets(self.name, self.sizes, self.task)

    def make_dialogue(self, style: Style, max_turns: int, options: Options) -> Dialogue:
        return OneFileDialogue(self.domain, self.rules, self._player(), style, max_turns)

    def make_demonstrator(self, task_set: str) -> Any:
        """Of the scripted player, on tasks of the split ``sft``. Raises ConfigError where there is no player."""
        player = self._player()
        if player is None:
            return super().make_demonstrator(task_set)
        return self.scripted_demonstrator(partial(self.task, "sft"), lambda task, first: ErringPlayer(player, first))

    def _player(self) -> Player | None:
        has_one = type(self).good_actions is not OneFileEnvironment.good_actions
        return self._good_actions if has_one else None

    def _good_actions(self, first: str, answers: Answers) -> list[str]:
        return list(
            TEXTS.check(f"environment {self.name!r}", "good_actions returned", self.good_actions(first, answers))
        )


class OneFileDialogue(TaggedDialogue):
    """The text side: observations as they are, one action in tags.

    ``rules``: what a large model is told first; a small one learns them.
    """

    def __init__(self, domain: str, rules: str, player: Player | None, style: Style, max_turns: int) -> None:
        self.domain = self.label = domain
        self._rules, self._player = rules, player
        super().__init__(style, max_turns)

    def opening(self, task: Task, first: Observation) -> list[Message]:
        """The rules and the first observation; in the compact style that alone."""
        if self.style == "compact":
            return [Message("user", f"0: {first.text}")]
        return [Message("system", f"{self._rules}\n{FORMAT}"), Message("user", first.text)]

    def following(self, first: Observation, actions: Sequence[str], now: Observation) -> Message:
        return Message("user", f"{len(actions)}: {now.text}" if self.style == "compact" else now.text)

    def parse(self, response: str, now: Observation, actions: Sequence[str]) -> Parsed:
        action = each_tag_once(response)
        if action is None:
            return Parsed(None, StopReason.FORMAT)
        if not self.possible(action, now):
            return Parsed(None, StopReason.INADMISSIBLE)
        repeated = repeats(actions, action, self.options.repetitions)
        return Parsed(None, StopReason.REPETITION) if repeated else Parsed(action)

    def critique(self, transcript: Transcript) -> Critique | None:
        """What the scripted player says; None where there is none."""
        if self._player is None:
            return None
        return criticise(ErringPlayer(self._player, transcript.first), transcript, self.max_turns)


class ErringPlayer(ScriptedExpert):
    """``player`` at its first observation; its errors are admissible actions that it would not take."""

    def __init__(self, player: Player, first: str) -> None:
        self._player, self._first = player, first
        self._answers: list[tuple[str, str]] = []

    def observe(self, action: str, text: str) -> None:
        self._answers.append((action, text))

    def suggested(self) -> list[str]:
        return self._player(self._first, self._answers)[:1]

    def suggested_at_limit(self) -> list[str]:
        return self.suggested()

    def thought(self) -> str:
        return "next"

    def choose(
        self, now: Observation, actions: Sequence[str], error_model: ErrorModel, rng: np.random.Generator
    ) -> str:
        """The best action, or with the error rate another one: a systematic error is the first of them."""
        good = self._player(self._first, self._answers)
        if not good:
            raise wrong("a demonstration", "good_actions returned", good, "name an action while an episode goes on")
        others = [action for action in now.admissible if action not in good]
        if not others or rng.random() >= error_model.rate:
            return good[0]
        return others[0] if rng.random() < error_model.systematic else others[int(rng.integers(len(others)))]

    def check(self, turn: int, action: str, text: str) -> WrongAction | None:
        """Wrong is what the player would not have done."""
        good = self._player(self._first, self._answers)
        return None if action in good else WrongAction(turn, f"{action} does not help", tuple(good[:1]))

    def summary(self, answers: Answers) -> str:
        return f"{len(answers)} actions"
