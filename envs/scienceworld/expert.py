"""Scripted expert of ScienceWorld; its demonstrations train the nano model. It knows a problem's solution.

It tracks from the observed texts which steps are done, errs at a given rate, returns to the solution after
an error, and criticises a finished episode. A critique names an object only if the texts before its turn
show it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from r3l.envs.base.experts import Answers, ErrorModel, ScriptedExpert, WrongAction
from r3l.envs.scienceworld.text.compact_text import compact

from r3l.core.environment import Observation
from r3l.core.seeds import seed_of
from r3l.core.task import Task

LOOK = "look around"
GO = "teleport to "
FOCUS = "focus on "
TAKE = "pick up "
PUT = "move "
PLACES = (
    "art studio",
    "bathroom",
    "bedroom",
    "foundry",
    "greenhouse",
    "hallway",
    "kitchen",
    "living room",
    "outside",
    "workshop",
)
_HERE = re.compile(r"This (?:room|outside location) is called the ([^.]+)\.")
_WENT = re.compile(r"You (?:teleport|move) to the ([^.]+)\.")
_CONFUSED = ("No known action", "Ambiguous", "Unknown")


@dataclass
class ScienceWorldExpert(ScriptedExpert):
    """Scripted expert that follows ``solution``, correct actions from the start, in order.

    - ``here``: the current place; ``seen``: place -> its shortened observation
    - ``done``: actions that succeeded, other than going and looking; ``failed``: the task is lost
    """

    solution: Sequence[str]
    here: str = ""
    seen: dict[str, str] = field(default_factory=dict)  # place -> its shortened observation
    done: set[str] = field(default_factory=set)  # actions other than going and looking that succeeded
    failed: bool = False

    @classmethod
    def at_start(cls, solution: Sequence[str], first: str) -> ScienceWorldExpert:
        """An expert that has read only the first observation ``first``, whose first line is the task."""
        expert = cls(solution)
        expert._look(first.partition("\n")[2])
        return expert

    def observe(self, action: str, text: str) -> None:
        went = _WENT.fullmatch(text)
        if went:
            self.here = went[1]
        elif _HERE.match(text):
            self._look(text)
        elif not text.startswith(_CONFUSED):
            self.done.add(action)
            self.failed |= action.startswith(FOCUS) and action not in self.solution

    def _look(self, text: str) -> None:
        """Take in the description of a place."""
        place = _HERE.match(text)
        if place:
            self.here = place[1]
            self.seen[self.here] = compact(text)

    def suggested(self) -> list[str]:
        """The actions still to do, in order, up to the first that names an object not seen yet."""
        steps: list[str] = []
        for action in plan(self):
            thing = _thing(action)
            if thing is not None and not any(thing in text for text in self.seen.values()):
                break
            steps.append(action)
        return steps

    def thought(self) -> str:
        """Short subgoal of the correct next action: ``go outside``, ``focus dove egg``, ``put dove egg``."""
        steps = plan(self)
        if not steps:
            return "nothing left"
        step = steps[0]
        for verb, word in ((FOCUS, "focus"), (TAKE, "take"), (PUT, "put")):
            if step.startswith(verb):
                return f"{word} {_thing(step)}"
        return f"go {step.removeprefix(GO)}" if step.startswith(GO) else "look"

    def choose(
        self, now: Observation, actions: Sequence[str], error_model: ErrorModel, rng: np.random.Generator
    ) -> str:
        """The correct action, or with probability ``error_model.rate`` a wrong one.

        It is always a wrong one if the solution is done or the task has failed. With
        ``error_model.overlooks`` the agent takes an object without focusing on it first. ``actions``: the
        earlier actions of the episode; no wrong action is chosen three times in a row.
        """
        steps = plan(self)
        right = steps[0] if steps else LOOK
        if error_model.overlooks and right.startswith(FOCUS) and len(steps) > 1 and steps[1].startswith(TAKE):
            right = steps[1]
        if steps and rng.random() >= error_model.rate:
            return right

        # Errors: going elsewhere, looking again; when it should focus, above all focusing on or taking the
        # wrong object.
        wrong = [GO + place for place in PLACES if place != self.here and GO + place != right]
        if right.startswith(FOCUS):
            others = [name for name in _listed(self) if FOCUS + name not in self.solution]
            wrong = [FOCUS + name for name in others] + [TAKE + name for name in others] + wrong[:2]
        errors = [a for a in [*wrong, LOOK] if [*actions[-2:], a] != [a, a, a]]

        # A systematic error is the same for the same place and the same kind of next step.
        if rng.random() < error_model.systematic:
            return errors[seed_of("habit", self.here, self.thought().split()[0]) % len(errors)]
        return str(rng.choice(errors))

    def check(self, turn: int, action: str, text: str) -> WrongAction | None:
        """Judge ``action``: it is wrong if it is not the solution's next one; None if it is right.

        Nothing is wrong after the solution is done or the task has failed.
        """
        steps = plan(self)
        if not steps or action == steps[0]:
            return None

        # The cause, in the words of a critique.
        if text.startswith(_CONFUSED) or not text:
            cause = f"{action} is not possible"
        elif action.startswith(FOCUS):
            cause = f"{action.removeprefix(FOCUS)} is wrong"
        elif action.startswith(TAKE) and steps[0].startswith(FOCUS):
            cause = "taken before focusing"
        elif action.startswith(GO):
            cause = f"nothing to do in {action.removeprefix(GO)}"
        else:
            cause = f"{action} does not help"
        known = self.suggested()
        return WrongAction(turn, cause, tuple(known), complete=known == steps)

    def summary(self, answers: Answers) -> str:
        visited = len({action for action, _ in answers if action.startswith(GO)})
        return f"{len(answers)} steps, {visited} places"

    def guided(self, error_model: ErrorModel, suggested: Sequence[str]) -> ErrorModel:
        """The error model after a critique: the agent no longer skips the action "focus on" of a task.

        ``suggested``, the critique's actions, is not read.
        """
        return replace(error_model, overlooks=False)

    def invalid_action(self, now: Observation, rng: np.random.Generator) -> str:
        """An action on an object that is in no task, drawn by ``rng``; it is impossible and costs a turn."""
        names = ("elephant egg", "red candle", "silver key", "glass marble")
        return f"{rng.choice(['focus on', 'pick up'])} {rng.choice(names)}"

    def likely_turns(self, max_turns: int) -> int:
        """The length of the solution and two more; ``max_turns`` is not read."""
        return len(self.solution) + 2


def expert_of(task: Task, first: str) -> ScienceWorldExpert:
    """An expert for ``task`` by its stored solution. Raises KeyError for a task without one."""
    return ScienceWorldExpert.at_start(task.payload["solution"], first)


def plan(expert: ScienceWorldExpert) -> list[str]:
    """The correct actions from here on, in order; [] if everything is done or the task has failed.

    They are the solution's actions that are not done yet, with a ``teleport to`` before each that is done in
    another place.
    """
    if expert.failed:
        return []
    here = expert.here
    place = next(iter(expert.seen), expert.here)  # place of the solution's step, from the first one
    steps: list[str] = []
    for action in expert.solution:
        if action.startswith(GO):
            place = action.removeprefix(GO)
            continue
        if action in expert.done or (action == LOOK and place in expert.seen):
            continue
        # Walk only to places where a step is left, from any place to which an error may have led.
        if here != place:
            steps.append(GO + place)
            here = place
        steps.append(action)
    return steps


def _thing(action: str) -> str | None:
    """The object in an action; None for going and looking."""
    for verb in (FOCUS, TAKE, PUT):
        if action.startswith(verb):
            return action.removeprefix(verb).split(" to ")[0]
    return None


def _listed(expert: ScienceWorldExpert) -> list[str]:
    """Objects seen here, without their contents in parentheses."""
    text = expert.seen.get(expert.here, "").partition(": ")[2].removesuffix(" ...")
    while "(" in text:
        bare = re.sub(r" ?\([^()]*\)", "", text)
        if bare == text:  # a bracket without its pair
            break
        text = bare
    return [name for name in text.split(", ") if name]
