"""The scripted expert of ScienceWorld, whose demonstrations teach the nano model. It knows a problem's solution.

It keeps track of what is done from the observed texts, errs at a given rate, comes back to the solution from
wherever an error led it, and criticises a finished episode. A critique names a thing only if the texts up to its turn
show it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from r3l.envs.base.experts import Answers, ErrorModel, ScriptedExpert, WrongAction
from r3l.envs.scienceworld.text.compact_text import brief

from r3l.core.environment import Observation
from r3l.core.seeds import seed_of
from r3l.core.task import Task

LOOK, GO, FOCUS, TAKE, PUT = "look around", "teleport to ", "focus on ", "pick up ", "move "
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
    """What the texts so far say. ``solution``: right actions from the start, in order."""

    solution: Sequence[str]
    here: str = ""
    seen: dict[str, str] = field(default_factory=dict)  # place -> what was seen there, shortened
    done: set[str] = field(default_factory=set)  # actions other than going and looking that succeeded
    failed: bool = False

    @classmethod
    def at_start(cls, solution: Sequence[str], first: str) -> ScienceWorldExpert:
        """From the first observation: the task, then what is seen."""
        expert = cls(solution)
        expert._look(first.partition("\n")[2])
        return expert

    def observe(self, action: str, text: str) -> None:
        if went := _WENT.fullmatch(text):
            self.here = went[1]
        elif _HERE.match(text):
            self._look(text)
        elif not text.startswith(_CONFUSED):
            self.done.add(action)
            self.failed |= action.startswith(FOCUS) and action not in self.solution

    def _look(self, text: str) -> None:
        place = _HERE.match(text)
        if place:
            self.here = place[1]
            self.seen[self.here] = brief(text)

    def shows(self, name: str) -> bool:
        """The thing has been seen anywhere."""
        return any(name in text for text in self.seen.values())

    def suggested(self) -> list[str]:
        """The plan up to where something unseen would be named."""
        steps: list[str] = []
        for action in plan(self):
            thing = _thing(action)
            if thing is not None and not self.shows(thing):
                break
            steps.append(action)
        return steps

    def thought(self) -> str:
        """A short subgoal, e.g. ``go outside``, ``focus dove egg``, ``put dove egg``."""
        steps = plan(self)
        if not steps:
            return "nothing left"
        thing = _thing(steps[0])
        if thing is None:
            return f"go {steps[0].removeprefix(GO)}" if steps[0].startswith(GO) else "look"
        return {FOCUS: "focus ", TAKE: "take ", PUT: "put "}[_verb(steps[0])] + thing

    def choose(
        self, now: Observation, actions: Sequence[str], error_model: ErrorModel, rng: np.random.Generator
    ) -> str:
        """The right action, or with the error rate another. Focusing on a thing before taking it may be overlooked."""
        steps = plan(self)
        right = steps[0] if steps else LOOK
        if error_model.overlooks and right.startswith(FOCUS) and len(steps) > 1 and steps[1].startswith(TAKE):
            right = steps[1]
        if steps and rng.random() >= error_model.rate:
            return right
        errors = [a for a in _errors(self, right) if [*actions[-2:], a] != [a, a, a]]
        if rng.random() < error_model.systematic:  # the situation: the place, and what is to be done there
            return errors[seed_of("habit", self.here, self.thought().split()[0]) % len(errors)]
        return str(rng.choice(errors))

    def check(self, turn: int, action: str, text: str) -> WrongAction | None:
        """An action other than the solution's next."""
        steps = plan(self)
        if not steps or action == steps[0]:
            return None
        known = self.suggested()
        return WrongAction(turn, _cause(self, action, text), tuple(known), complete=known == steps)

    def summary(self, answers: Answers) -> str:
        visited = len({action for action, _ in answers if action.startswith(GO)})
        return f"{len(answers)} steps, {visited} places"

    def guided(self, error_model: ErrorModel, suggested: Sequence[str]) -> ErrorModel:
        """Whoever was criticised no longer overlooks focusing."""
        return replace(error_model, overlooks=False)

    def invalid_action(self, now: Observation, rng: np.random.Generator) -> str:
        """An action on a thing that is in no task: it costs a turn."""
        names = ("elephant egg", "red candle", "silver key", "glass marble")
        return f"{rng.choice(['focus on', 'pick up'])} {rng.choice(names)}"

    def likely_turns(self, max_turns: int) -> int:
        """Little more than the solution has."""
        return len(self.solution) + 2


def expert_of(task: Task, first: str) -> ScienceWorldExpert:
    return ScienceWorldExpert.at_start(task.payload["solution"], first)


def plan(expert: ScienceWorldExpert) -> list[str]:
    """The right actions from here on. Empty when all is done or has failed."""
    if expert.failed:
        return []
    here, steps = expert.here, []
    for place, action in _with_places(expert):
        if action in expert.done or (action == LOOK and place in expert.seen):
            continue
        if here != place:
            steps.append(GO + place)
            here = place
        steps.append(action)
    return steps


def _with_places(expert: ScienceWorldExpert) -> list[tuple[str, str]]:
    """(place, action) of every step of the solution that is not a walk."""
    place, steps = next(iter(expert.seen), expert.here), []
    for action in expert.solution:
        if action.startswith(GO):
            place = action.removeprefix(GO)
        else:
            steps.append((place, action))
    return steps


def _thing(action: str) -> str | None:
    """The thing an action names; None for going and looking."""
    for verb in (FOCUS, TAKE, PUT):
        if action.startswith(verb):
            return action.removeprefix(verb).split(" to ")[0]
    return None


def _verb(action: str) -> str:
    return next(verb for verb in (FOCUS, TAKE, PUT) if action.startswith(verb))


def _errors(expert: ScienceWorldExpert, right: str) -> list[str]:
    """Wrong actions: going elsewhere, looking again, and where something is to be focused on, the wrong thing."""
    wrong = [GO + place for place in PLACES if place != expert.here and GO + place != right]
    if right.startswith(FOCUS):
        others = [name for name in _listed(expert) if FOCUS + name not in expert.solution]
        return [FOCUS + name for name in others] + [TAKE + name for name in others] + wrong[:2] + [LOOK]
    return [*wrong, LOOK]


def _listed(expert: ScienceWorldExpert) -> list[str]:
    """Things seen here, without what is in or on them."""
    text = expert.seen.get(expert.here, "").partition(": ")[2].removesuffix(" ...")
    while (bare := re.sub(r" ?\([^()]*\)", "", text)) != text:
        text = bare
    return [name for name in text.split(", ") if name]


def _cause(expert: ScienceWorldExpert, action: str, text: str) -> str:
    if text.startswith(_CONFUSED) or not text:
        return f"{action} is not possible"
    if action.startswith(FOCUS):
        return f"{action.removeprefix(FOCUS)} is wrong"
    if action.startswith(TAKE) and plan(expert)[0].startswith(FOCUS):
        return "taken before focusing"
    if action.startswith(GO):
        return f"nothing to do in {action.removeprefix(GO)}"
    return f"{action} does not help"
