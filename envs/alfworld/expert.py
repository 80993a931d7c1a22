"""Scripted expert of ALFWorld; its demonstrations train the nano model. It reads only what the policy reads.

It tracks what the texts have shown, derives the correct next actions, errs at a given rate, and criticises
a finished episode by what the texts showed before the wrong action (seen but not taken, visited before, not
yet visited). It never uses the engine's facts, so that no model is trained to guess hidden positions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from r3l.envs.alfworld.goals import HouseGoal, parse_goal
from r3l.envs.base.experts import Answers, ErrorModel, ScriptedExpert, WrongAction

from r3l.core.environment import Observation
from r3l.core.task import Task

DEVICES = {"clean": "sinkbasin", "hot": "microwave", "cool": "fridge"}
VERBS = {"clean": "clean", "hot": "heat", "cool": "cool"}
_SEEN = re.compile(r"(?:On the|The) (\w+ \d+)(?: is open\. In it)?, you see (.*?)\.(?: |$)")
_CLOSED = re.compile(r"The (\w+ \d+) is closed\.")
_ITEM = re.compile(r"\ba (\w+ \d+)")


def kind_of(name: str) -> str:
    """The class in a displayed name: ``"mug 2"`` -> ``"mug"``."""
    return name.rsplit(" ", 1)[0]


@dataclass
class AlfworldExpert(ScriptedExpert):
    """Scripted expert with what the texts so far say about the house. Names are as displayed: ``"drawer 2"``.

    - ``contents``: objects seen in each receptacle; ``closed``: receptacles seen closed
    - ``here``, ``holding``: the current receptacle and the object in hand
    - ``treated``: objects that the agent has cleaned, heated or cooled; ``placed``: delivered object ->
      receptacle
    """

    goal: HouseGoal
    receptacles: list[str]
    contents: dict[str, list[str]] = field(default_factory=dict)  # receptacle -> items, once seen
    closed: set[str] = field(default_factory=set)
    here: str | None = None
    holding: str | None = None
    treated: set[str] = field(default_factory=set)  # items that were cleaned, heated or cooled
    placed: dict[str, str] = field(default_factory=dict)  # delivered item -> receptacle

    @classmethod
    def at_start(cls, goal: HouseGoal, first: str) -> AlfworldExpert:
        """An expert that has read only the first observation ``first``, which lists the receptacles."""
        return cls(goal, _ITEM.findall(first.split("Your task is to:")[0]))

    def observe(self, action: str, text: str) -> None:
        words = action.split() or [""]
        item = " ".join(words[1:3])  # take mug 1 from desk 2
        place = " ".join(words[4:6])
        if action.startswith("go to ") and text.startswith("You arrive"):
            self.here = action.removeprefix("go to ")
        elif words[0] == "take" and text.startswith("You pick up"):
            self.holding = item
            self.contents[place] = [other for other in self.contents.get(place, []) if other != item]
            self.placed.pop(item, None)
        elif words[0] == "move" and text.startswith("You move"):
            self.holding = None
            self.contents.setdefault(place, []).append(item)
            delivered = kind_of(item) == self.goal.object and kind_of(place) == self.goal.destination
            if delivered and self.ready(item):
                self.placed[item] = place
        elif words[0] in VERBS.values() and text.startswith("You "):
            self.treated.add(item)
        elif words[0] == "close" and text:
            self.closed.add(item)

        # Observations also say which receptacles are closed and what the open ones contain.
        for name in _CLOSED.findall(text):
            self.closed.add(name)
        for name, items in _SEEN.findall(text):
            self.contents[name] = _ITEM.findall(items)
            self.closed.discard(name)

    def ready(self, item: str) -> bool:
        """True if the goal requires no state, or the agent has cleaned, heated or cooled ``item``.

        ``item``: a displayed name. Which of the three actions it was is not compared with the goal.
        """
        return self.goal.state is None or item in self.treated

    def unexplored(self) -> list[str]:
        """Receptacles whose contents have not been seen, in displayed order."""
        return [r for r in self.receptacles if r not in self.contents]

    def where(self, kind: str) -> tuple[str, str] | None:
        """(object, receptacle) of a seen object of class ``kind`` that is not delivered yet, or None.

        An object at the current receptacle comes first.
        """
        places = sorted(self.contents, key=lambda r: r != self.here)
        for place in places:
            at_destination = kind_of(place) == self.goal.destination
            for item in self.contents[place]:
                # Of two objects, one may be at the destination from the start.
                already_there = at_destination and self.ready(item) and self.goal.count == 2
                if kind_of(item) == kind and item not in self.placed and not already_there:
                    return item, place
        return None

    def suggested(self) -> list[str]:
        """The actions still to do, in order, up to the first that needs an object not seen yet."""
        return plan(self)

    def thought(self) -> str:
        """The agent's location, and a short subgoal: ``at desk 1, find mug``, ``at desk 1, mug 2 here``."""
        # A small model that repeats what it has just read seldom walks to where it is or takes what is not
        # there.
        held = self.holding
        if held is None:
            seen = self.where(self.goal.object)
            subgoal = f"{seen[0]} here" if seen and seen[1] == self.here else f"find {self.goal.object}"
        elif kind_of(held) != self.goal.object:
            subgoal = f"drop {held}"
        elif self.goal.lamp is not None:
            subgoal = f"find {self.goal.lamp}"
        elif not self.ready(held) and self.goal.state is not None:
            subgoal = f"{VERBS[self.goal.state]} {held}"
        else:
            subgoal = f"put {held}"
        return subgoal if self.here is None else f"at {self.here}, {subgoal}"

    def planned(self, action: str) -> str:
        """``action`` as a thought that begins with the current receptacle: ``at desk 1, go to bed 2``."""
        return action if self.here is None else f"at {self.here}, {action}"

    def choose(
        self, now: Observation, actions: Sequence[str], error_model: ErrorModel, rng: np.random.Generator
    ) -> str:
        """A correct action, or with probability ``error_model.rate`` a superfluous admissible one.

        Most wrong actions are needless walks; if no correct action is known, the action is always a wrong
        one. With ``error_model.overlooks`` the agent forgets to clean, heat or cool the object. ``actions``:
        the earlier actions of the episode.
        """
        expert = self
        if error_model.overlooks and self.holding and kind_of(self.holding) == self.goal.object:
            expert = replace(self, goal=replace(self.goal, state=None))

        # A correct action: mostly the first in the order in which the house lists its receptacles.
        every_right = right_actions(expert)
        order = {f"go to {r}": k for k, r in enumerate(expert.receptacles)}
        right = [a for a in sorted(every_right, key=lambda a: (order.get(a, -1), a)) if a in now.admissible]
        if right and rng.random() >= error_model.rate:
            return right[0] if rng.random() < error_model.systematic else str(rng.choice(right))

        # The error that recurs in this situation: walk on to the next unexplored place when something is to
        # be done here or, if every place is explored, back to the last one.
        systematic = ""
        went = [a for a in actions if a.startswith("go to ")]
        back = [a for a in went if a != f"go to {expert.here}" and a not in every_right]
        if back:
            systematic = back[-1]
        if every_right and not any(a.startswith("go to ") for a in every_right):
            elsewhere = [place for place in expert.unexplored() if place != expert.here]
            if elsewhere:
                systematic = f"go to {elsewhere[0]}"
        if systematic in now.admissible and rng.random() < error_model.systematic:
            return systematic

        # Any other error: a needless walk, most likely to a place seen before. Taking a wrong object is not
        # among them: a small model that has seen it takes objects that are not there.
        walks = [a for a in now.admissible if a.startswith("go to ") and a not in every_right]
        seen = [a for a in walks if a.removeprefix("go to ") in expert.contents]
        errors = [a for a in sorted(seen * 3 + walks) if [*actions[-2:], a] != [a, a, a]]
        return str(rng.choice(errors or sorted(now.admissible)))

    def check(self, turn: int, action: str, text: str) -> WrongAction | None:
        """Judge ``action``, after which the text was ``text``; None if it was correct.

        Wrong are superfluous actions, and impossible ones, which ended the episode (``text`` is then empty).
        """
        steps = tuple(plan(self))
        if not text:
            return WrongAction(turn, "not possible there", steps, fatal=True)
        if action in right_actions(self):
            return None

        # The cause, in the words of a critique.
        place = action.removeprefix("go to ")
        if steps and steps[0].startswith("take "):
            cause = f"{' '.join(steps[0].split()[1:3])} seen but not taken"
        elif action.startswith("take "):
            cause = f"{' '.join(action.split()[1:3])} is not needed"
        elif self.holding is not None and not self.ready(self.holding) and self.goal.state is not None:
            cause = f"{self.holding} needs {self.goal.state}"
        elif action.startswith("go to ") and place in self.contents:
            cause = f"{place} seen before"
        else:
            cause = f"{action} does not help"
        delivers = bool(steps) and steps[-1].startswith(("move ", "use "))
        return WrongAction(turn, cause, steps, complete=delivers)

    def summary(self, answers: Answers) -> str:
        visited = len({action for action, _ in answers if action.startswith("go to ")})
        return f"{len(answers)} steps, {visited} places"

    def guided(self, error_model: ErrorModel, suggested: Sequence[str]) -> ErrorModel:
        """The error model after the agent has read the actions ``suggested``.

        If they clean, heat or cool an object, the agent no longer overlooks that.
        """
        treats = any(action.split()[0] in VERBS.values() for action in suggested)
        return replace(error_model, overlooks=error_model.overlooks and not treats)

    def invalid_action(self, now: Observation, rng: np.random.Generator) -> str:
        """A well-formed action not in ``now.admissible``, drawn by ``rng``: take or open something."""
        actions = [f"take {self.goal.object} {n} from {r}" for n in (1, 2) for r in self.receptacles]
        actions += [f"open {r}" for r in self.receptacles]
        return str(rng.choice([action for action in actions if action not in now.admissible]))


def expert_of(task: Task, first: str) -> AlfworldExpert:
    """An expert for ``task`` by its ``goal_text``. Raises DataError for a crowd-sourced sentence."""
    return AlfworldExpert.at_start(parse_goal(str(task.payload["goal_text"])), first)


def plan(expert: AlfworldExpert) -> list[str]:
    """The correct actions from here on, in order.

    It ends early if an object or lamp has not been seen yet: then its last action, if any, continues the
    search.
    """
    goal = expert.goal
    held = expert.holding
    at = expert.here
    steps: list[str] = []

    # Fetch the object.
    if held is not None and kind_of(held) != goal.object:
        return [f"move {held} to {expert.here}"]
    if held is None:
        item = expert.where(goal.object)
        if item is None:
            return _search(expert)
        held, place = item
        steps += _approach(expert, at, place) + [f"take {held} from {place}"]
        at = place

    # Look at it under the lamp, or treat it.
    if goal.lamp is not None:
        lamp = expert.where(goal.lamp)
        if lamp is None:
            return steps or _search(expert)
        return steps + _approach(expert, at, lamp[1]) + [f"use {lamp[0]}"]
    if not expert.ready(held) and goal.state is not None:
        device = next((r for r in expert.receptacles if kind_of(r) == DEVICES[goal.state]), None)
        if device is not None:
            if at != device:
                steps.append(f"go to {device}")
            steps.append(f"{VERBS[goal.state]} {held} with {device}")
            at = device

    # Deliver it.
    target = next((r for r in expert.receptacles if kind_of(r) == goal.destination), None)
    if target is None:
        return steps
    if expert.placed:  # the first of two objects was placed here, so the second goes there too
        target = next(iter(expert.placed.values()))
    return steps + _approach(expert, at, target) + [f"move {held} to {target}"]


def _approach(expert: AlfworldExpert, at: str | None, place: str) -> list[str]:
    """Go from ``at`` to ``place`` and open it, as far as needed."""
    steps = []
    if at != place:
        steps.append(f"go to {place}")
    if place in expert.closed:
        steps.append(f"open {place}")
    return steps


def _search(expert: AlfworldExpert) -> list[str]:
    """Open the current receptacle, or go to the next unexplored one."""
    if expert.here in expert.closed:
        return [f"open {expert.here}"]
    return [f"go to {r}" for r in expert.unexplored()[:1]]


def right_actions(expert: AlfworldExpert) -> set[str]:
    """Every action that an error-free agent may take next; empty if :func:`plan` knows none.

    It is the first action of the plan, with two exceptions: a search may go to any unexplored receptacle, and
    a delivery to any receptacle of the destination's class.
    """
    steps = plan(expert)
    if not steps:
        return set()

    # While it searches, any unexplored place is as good as another.
    needs = expert.goal.lamp if expert.holding is not None else expert.goal.object
    searching = steps[0].startswith("go to ") and (needs is None or expert.where(needs) is None)
    if searching and expert.unexplored() and steps == _search(expert):
        return {f"go to {r}" for r in expert.unexplored()}

    # An object may be delivered to any receptacle of the destination's class.
    if steps[0].startswith("go to "):
        place = steps[0].removeprefix("go to ")
        if kind_of(place) == expert.goal.destination and expert.holding and expert.ready(expert.holding):
            return {f"go to {r}" for r in expert.receptacles if kind_of(r) == kind_of(place)}
    return {steps[0]}
