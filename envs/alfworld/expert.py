"""The scripted expert of ALFWorld, whose demonstrations teach the nano model. It reads only what the policy reads.

It keeps track of what the texts have shown, knows which next actions are right by that, errs at a given rate, and
criticises a finished episode by what the text up to the wrong action shows (seen but not taken, visited before, not
yet visited). It never looks at the engine's facts, so that no model is taught to guess hidden positions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from r3l.envs.alfworld.goals import Goal, parse_goal
from r3l.envs.base.experts import Answers, ErrorModel, ScriptedExpert, WrongAction

from r3l.core.environment import Observation
from r3l.core.task import Task

DEVICES = {"clean": "sinkbasin", "hot": "microwave", "cool": "fridge"}
VERBS = {"clean": "clean", "hot": "heat", "cool": "cool"}
_SEEN = re.compile(r"(?:On the|The) (\w+ \d+)(?: is open\. In it)?, you see (.*?)\.(?: |$)")
_CLOSED = re.compile(r"The (\w+ \d+) is closed\.")
_ITEM = re.compile(r"\ba (\w+ \d+)")


def kind_of(name: str) -> str:
    """``"mug 2"`` -> ``"mug"``."""
    return name.rsplit(" ", 1)[0]


@dataclass
class AlfworldExpert(ScriptedExpert):
    """What the texts so far say about the house. Names are as displayed, e.g. ``"drawer 2"``."""

    goal: Goal
    receptacles: list[str]
    contents: dict[str, list[str]] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)
    here: str | None = None
    holding: str | None = None
    treated: set[str] = field(default_factory=set)
    placed: dict[str, str] = field(default_factory=dict)

    @classmethod
    def at_start(cls, goal: Goal, first: str) -> AlfworldExpert:
        """From the first observation, which lists the receptacles."""
        return cls(goal, _ITEM.findall(first.split("Your task is to:")[0]))

    def observe(self, action: str, text: str) -> None:
        words = action.split() or [""]
        if action.startswith("go to ") and text.startswith("You arrive"):
            self.here = action.removeprefix("go to ")
        elif words[0] == "take" and text.startswith("You pick up"):
            self._take(" ".join(words[1:3]), " ".join(words[4:6]))
        elif words[0] == "move" and text.startswith("You move"):
            self._put(" ".join(words[1:3]), " ".join(words[4:6]))
        elif words[0] in VERBS.values() and text.startswith("You "):
            self.treated.add(" ".join(words[1:3]))
        elif words[0] == "close" and text:
            self.closed.add(" ".join(words[1:3]))
        for name in _CLOSED.findall(text):
            self.closed.add(name)
        for name, items in _SEEN.findall(text):
            self.contents[name] = _ITEM.findall(items)
            self.closed.discard(name)

    def _take(self, item: str, place: str) -> None:
        self.holding = item
        self.contents[place] = [i for i in self.contents.get(place, []) if i != item]
        self.placed.pop(item, None)

    def _put(self, item: str, place: str) -> None:
        self.holding = None
        self.contents.setdefault(place, []).append(item)
        right_place = kind_of(place) == self.goal.destination
        if kind_of(item) == self.goal.object and right_place and self.ready(item):
            self.placed[item] = place

    def ready(self, item: str) -> bool:
        """``item`` has the state the goal asks for."""
        return self.goal.state is None or item in self.treated

    def unexplored(self) -> list[str]:
        """Receptacles whose contents have not been seen, in displayed order."""
        return [r for r in self.receptacles if r not in self.contents]

    def where(self, kind: str) -> tuple[str, str] | None:
        """(item, receptacle) of a seen, not yet delivered item of ``kind``; the present place first."""
        places = sorted(self.contents, key=lambda r: r != self.here)
        for place in places:
            for item in self.contents[place]:
                if kind_of(item) == kind and item not in self.placed and not self._already_there(item, place):
                    return item, place
        return None

    def _already_there(self, item: str, place: str) -> bool:
        return kind_of(place) == self.goal.destination and self.ready(item) and self.goal.count == 2

    def suggested(self) -> list[str]:
        """The plan: it never names what has not been seen."""
        return plan(self)

    def thought(self) -> str:
        """Where the agent is and a short subgoal, e.g. ``at desk 1, find mug``, ``at desk 1, mug 2 here``.

        A small model that writes down what it has just read seldom walks to where it is, or takes what is not there.
        """
        return self._subgoal() if self.here is None else f"at {self.here}, {self._subgoal()}"

    def planned(self, action: str) -> str:
        """In the form of other thoughts: ``at desk 1, go to bed 2``."""
        return action if self.here is None else f"at {self.here}, {action}"

    def _subgoal(self) -> str:
        goal, held = self.goal, self.holding
        if held is None:
            seen = self.where(goal.object)
            return f"{seen[0]} here" if seen and seen[1] == self.here else f"find {goal.object}"
        if kind_of(held) != goal.object:
            return f"drop {held}"
        if goal.lamp is not None:
            return f"find {goal.lamp}"
        if not self.ready(held) and goal.state is not None:
            return f"{VERBS[goal.state]} {held}"
        return f"put {held}"

    def choose(
        self, now: Observation, actions: Sequence[str], error_model: ErrorModel, rng: np.random.Generator
    ) -> str:
        """A right action, or with the error rate a needless admissible one. The treatment may be overlooked."""
        expert = self
        if error_model.overlooks and self.holding and kind_of(self.holding) == self.goal.object:
            expert = replace(self, goal=replace(self.goal, state=None))
        right = [a for a in _in_house_order(expert, right_actions(expert)) if a in now.admissible]
        if right and rng.random() >= error_model.rate:
            return right[0] if rng.random() < error_model.systematic else str(rng.choice(right))
        systematic = _systematic_error(expert, actions)
        if systematic in now.admissible and rng.random() < error_model.systematic:
            return systematic
        errors = [a for a in _errors(expert, now.admissible) if [*actions[-2:], a] != [a, a, a]]
        return str(rng.choice(errors or sorted(now.admissible)))

    def check(self, turn: int, action: str, text: str) -> WrongAction | None:
        """A needless action, or one that was impossible and so ended the episode."""
        steps = tuple(plan(self))
        if not text:
            return WrongAction(turn, "not possible there", steps, fatal=True)
        if action in right_actions(self):
            return None
        delivers = bool(steps) and steps[-1].startswith(("move ", "use "))
        return WrongAction(turn, _cause(self, action), steps, complete=delivers)

    def summary(self, answers: Answers) -> str:
        visited = len({action for action, _ in answers if action.startswith("go to ")})
        return f"{len(answers)} steps, {visited} places"

    def guided(self, error_model: ErrorModel, suggested: Sequence[str]) -> ErrorModel:
        """A treatment that is suggested is not overlooked."""
        treats = any(action.startswith(tuple(f"{verb} " for verb in VERBS.values())) for action in suggested)
        return replace(error_model, overlooks=error_model.overlooks and not treats)

    def invalid_action(self, now: Observation, rng: np.random.Generator) -> str:
        """An action that the engine does not admit here."""
        actions = [f"take {self.goal.object} {n} from {r}" for n in (1, 2) for r in self.receptacles]
        actions += [f"open {r}" for r in self.receptacles]
        return str(rng.choice([action for action in actions if action not in now.admissible]))


def expert_of(task: Task, first: str) -> AlfworldExpert:
    return AlfworldExpert.at_start(parse_goal(str(task.payload["goal_text"])), first)


def plan(expert: AlfworldExpert) -> list[str]:
    """The right actions from here on as far as they are known; ends early where something must be found first."""
    goal, held = expert.goal, expert.holding
    steps: list[str] = []
    if held is not None and kind_of(held) != goal.object:
        return [f"move {held} to {expert.here}"]
    at = expert.here
    if held is None:
        item = expert.where(goal.object)
        if item is None:
            return _search(expert)
        held, place = item
        steps += _approach(expert, at, place) + [f"take {held} from {place}"]
        at = place
    if goal.lamp is not None:
        lamp = expert.where(goal.lamp)
        if lamp is None:
            return steps + (_search(expert) if not steps else [])
        return steps + _approach(expert, at, lamp[1]) + [f"use {lamp[0]}"]
    if not expert.ready(held) and goal.state is not None:
        device = next((r for r in expert.receptacles if kind_of(r) == DEVICES[goal.state]), None)
        if device is not None:
            steps += ([] if at == device else [f"go to {device}"]) + [f"{VERBS[goal.state]} {held} with {device}"]
            at = device
    target = next((r for r in expert.receptacles if kind_of(r) == goal.destination), None)
    if target is None:
        return steps
    if expert.placed:  # two objects belong into the same kind of place; keep to the one already used
        target = next(iter(expert.placed.values()))
    return steps + _approach(expert, at, target) + [f"move {held} to {target}"]


def _approach(expert: AlfworldExpert, at: str | None, place: str) -> list[str]:
    steps = [] if at == place else [f"go to {place}"]
    return steps + ([f"open {place}"] if place in expert.closed else [])


def _search(expert: AlfworldExpert) -> list[str]:
    if expert.here in expert.closed:
        return [f"open {expert.here}"]
    return [f"go to {r}" for r in expert.unexplored()[:1]]


def right_actions(expert: AlfworldExpert) -> set[str]:
    """Every next action that an error-free agent could take: the plan's first, or any unexplored place."""
    steps = plan(expert)
    if not steps:
        return set()
    needs = expert.goal.lamp if expert.holding is not None else expert.goal.object
    searching = steps[0].startswith("go to ") and (needs is None or expert.where(needs) is None)
    if searching and expert.unexplored() and steps == _search(expert):
        return {f"go to {r}" for r in expert.unexplored()}
    if steps[0].startswith("go to "):
        place = steps[0].removeprefix("go to ")
        if kind_of(place) == expert.goal.destination and expert.holding and expert.ready(expert.holding):
            return {f"go to {r}" for r in expert.receptacles if kind_of(r) == kind_of(place)}
    return {steps[0]}


def _in_house_order(expert: AlfworldExpert, actions: set[str]) -> list[str]:
    order = {f"go to {r}": k for k, r in enumerate(expert.receptacles)}
    return sorted(actions, key=lambda a: (order.get(a, -1), a))


def _systematic_error(expert: AlfworldExpert, actions: Sequence[str]) -> str:
    """Walk past to the next unexplored place where something should be done; else back to the last place."""
    right = right_actions(expert)
    if right and not any(a.startswith("go to ") for a in right):
        for place in expert.unexplored():
            if place != expert.here:
                return f"go to {place}"
    went = [a for a in actions if a.startswith("go to ") and a != f"go to {expert.here}" and a not in right]
    return went[-1] if went else ""


def _errors(expert: AlfworldExpert, admissible: Sequence[str]) -> list[str]:
    """Needless walks, to places seen before most of all.

    Not: taking the wrong thing. A small model that has seen it takes the wanted thing where it is not.
    """
    right = right_actions(expert)
    go = [a for a in admissible if a.startswith("go to ") and a not in right]
    seen = [a for a in go if a.removeprefix("go to ") in expert.contents]
    return sorted(seen * 3 + go)


def _cause(expert: AlfworldExpert, action: str) -> str:
    steps = plan(expert)
    place = action.removeprefix("go to ")
    if steps and steps[0].startswith("take "):
        return f"{' '.join(steps[0].split()[1:3])} seen but not taken"
    if action.startswith("take "):
        return f"{' '.join(action.split()[1:3])} is not needed"
    if expert.holding is not None and not expert.ready(expert.holding) and expert.goal.state is not None:
        return f"{expert.holding} needs {expert.goal.state}"
    if action.startswith("go to ") and place in expert.contents:
        return f"{place} seen before"
    return f"{action} does not help"
