"""Base of an environment in one file: the file has the engine and the rules, this module the rest.

Tasks are drawn by number; dialogue, task sets and demonstrations are generated. Example: `examples/guess.py`.
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
    """Base of the engine of an environment in one file: an ``Environment`` without snapshots.

    It must be deterministic, since a retry reaches its first turn by replaying the actions before it.
    """

    @abstractmethod
    def reset(self, task: Task) -> Observation:
        """Start ``task``; its payload is what ``OneFileEnvironment.problem`` drew."""

    @abstractmethod
    def step(self, action: str) -> Observation:
        """Apply one action and return the next observation.

        If the last observation listed admissible actions, the action is one of them.
        """

    def snapshot(self) -> object | None:
        """None: the worker pool reaches an earlier state by replaying the actions."""
        return None

    def restore(self, snapshot: object) -> Observation:
        """Never called, since there are no snapshots."""
        raise NotImplementedError

    def close(self) -> None:  # noqa: B027 - most engines hold no resources
        """Release resources; does nothing by default, since most engines hold none."""


class OneFileEnvironment(EnvironmentPackage[Options]):
    """Base class of an environment in one file; a subclass defines its engine and its problems.

    ``name``: the file's name. ``domain``: subject of the environment, for prompts. ``rules``: instructions
    for the model. ``sizes``: number of tasks per split. A subclass with ``good_actions`` also has a critic
    and demonstrations.
    """

    options = Options
    domain: str
    rules: str
    sizes: Mapping[str, int] = {"train": 200, "test": 100}

    @abstractmethod
    def problem(self, rng: np.random.Generator) -> dict[str, Any]:
        """Draw a problem: the payload of a task, in types that JSON can hold."""

    def good_actions(self, first: str, answers: Answers) -> list[str]:
        """The actions that count as right next, preferred one first; [] if unknown, as here: override it.

        The player reads what the policy reads: ``first``, the first observation, and ``answers``, a pair
        (action, observation after it) for each turn.
        """
        return []

    def task(self, split: str, number: int) -> Task:
        """Task ``number`` of a split, with a payload drawn by ``problem``; the same on every machine.

        Raises ContractError if ``problem`` returns anything but a JSON object.
        """
        payload = checked_payload(self.name, self.problem(generator(self.name, split, number)))
        return Task(f"{self.name}-{split}-{number:05d}", self.name, split, payload=payload)

    def task_sets(self) -> DrawnTaskSets:
        """Task sets by split (``sizes``), whose tasks are drawn by number."""
        return DrawnTaskSets(self.name, self.sizes, self.task)

    def make_dialogue(self, style: Style, max_turns: int, options: Options) -> Dialogue:
        return OneFileDialogue(self.domain, self.rules, self._player(), style, max_turns)

    def make_demonstrator(self, task_set: str) -> Any:
        """Demonstrator that plays ``good_actions`` on tasks that are drawn for SFT only (split ``sft``).

        They are the same for every ``task_set``. Raises ConfigError if the environment has no
        ``good_actions``.
        """
        player = self._player()
        if player is None:
            return super().make_demonstrator(task_set)
        return self.scripted_demonstrator(
            partial(self.task, "sft"),
            lambda task, first: ErringPlayer(player, first),
        )

    def _player(self) -> Player | None:
        """The scripted player; None if the subclass does not define ``good_actions``."""
        defined = type(self).good_actions is not OneFileEnvironment.good_actions
        return self._checked_good_actions if defined else None

    def _checked_good_actions(self, first: str, answers: Answers) -> list[str]:
        actions = self.good_actions(first, answers)
        return list(TEXTS.check(f"environment {self.name!r}", "good_actions returned", actions))


class OneFileDialogue(TaggedDialogue):
    """A ``Dialogue`` that shows observations unchanged and expects one action in tags.

    ``rules``: instructions of the full style; the compact style has none, since a model learns them from
    demonstrations.
    """

    def __init__(self, domain: str, rules: str, player: Player | None, style: Style, max_turns: int) -> None:
        self.domain = domain
        self.label = domain
        self._rules = rules
        self._player = player
        super().__init__(style, max_turns)

    def opening(self, task: Task, first: Observation) -> list[Message]:
        """The rules and the first observation; in the compact style only the observation."""
        if self.style == "compact":
            return [Message("user", f"0: {first.text}")]
        return [Message("system", f"{self._rules}\n{FORMAT}"), Message("user", first.text)]

    def following(self, first: Observation, actions: Sequence[str], now: Observation) -> Message:
        """The observation ``now`` as a user message; in the compact style after the number of actions."""
        return Message("user", f"{len(actions)}: {now.text}" if self.style == "compact" else now.text)

    def parse(self, response: str, now: Observation, actions: Sequence[str]) -> Parsed:
        """The action in tags, or why the response ends the episode: format, inadmissible, repetition."""
        action = each_tag_once(response)
        if action is None:
            return Parsed(None, StopReason.FORMAT)
        if not self.possible(action, now):
            return Parsed(None, StopReason.INADMISSIBLE)
        repeated = repeats(actions, action, self.options.repetitions)
        return Parsed(None, StopReason.REPETITION) if repeated else Parsed(action)

    def critique(self, transcript: Transcript) -> Critique | None:
        """The judgement of the scripted player (``good_actions``); None if the environment has none."""
        if self._player is None:
            return None
        return criticise(ErringPlayer(self._player, transcript.first), transcript, self.max_turns)


class ErringPlayer(ScriptedExpert):
    """Expert that takes the actions of a ``player`` (``OneFileEnvironment.good_actions``).

    Its errors are admissible actions that the player would not take.
    """

    def __init__(self, player: Player, first: str) -> None:
        self._player = player
        self._first = first
        self._answers: list[tuple[str, str]] = []

    def observe(self, action: str, text: str) -> None:
        self._answers.append((action, text))

    def suggested(self) -> list[str]:
        """The player's best action; [] if it knows none."""
        return self._player(self._first, self._answers)[:1]

    def suggested_at_limit(self) -> list[str]:
        return self.suggested()

    def thought(self) -> str:
        return "next"

    def choose(
        self, now: Observation, actions: Sequence[str], error_model: ErrorModel, rng: np.random.Generator
    ) -> str:
        """The player's best action, or with probability ``error_model.rate`` a wrong one.

        Wrong are all admissible actions that ``good_actions`` does not name; if there are none, the best
        action is returned. With probability ``error_model.systematic`` the first of them is chosen, so that
        the error recurs, else a random one. Raises ContractError if ``good_actions`` names no action.
        """
        good = self._player(self._first, self._answers)
        if not good:
            raise wrong(
                "a demonstration",
                "good_actions returned",
                good,
                "name an action while an episode goes on",
            )
        others = [action for action in now.admissible if action not in good]
        if not others or rng.random() >= error_model.rate:
            return good[0]
        return others[0] if rng.random() < error_model.systematic else others[int(rng.integers(len(others)))]

    def check(self, turn: int, action: str, text: str) -> WrongAction | None:
        """Describe what is wrong with ``action``; None if ``good_actions`` names it after the turns so far.

        ``turn`` is only copied into the result, which also has the best action. ``text``, the observation
        after the action, is not read.
        """
        good = self._player(self._first, self._answers)
        return None if action in good else WrongAction(turn, f"{action} does not help", tuple(good[:1]))

    def summary(self, answers: Answers) -> str:
        return f"{len(answers)} actions"
