"""A scripted household agent that reads only what the policy reads: it warm-starts the nano model.

It keeps a belief from the observed texts, knows which next actions are right under that belief, errs at a given
rate, and can review a finished episode: the first turn at which the action was not a right one is the pivot, and
the review says only what the text up to that turn shows (seen but not taken, visited before, not yet visited).
It never looks at the engine's facts, so its lessons never teach the model to guess hidden positions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from envs.alfworld.goals import Goal

DEVICES = {"clean": "sinkbasin", "hot": "microwave", "cool": "fridge"}
VERBS = {"clean": "clean", "hot": "heat", "cool": "cool"}
_SEEN = re.compile(r"(?:On the|The) (\w+ \d+)(?: is open\. In it)?, you see (.*?)\.(?: |$)")
_CLOSED = re.compile(r"The (\w+ \d+) is closed\.")
_ITEM = re.compile(r"\ba (\w+ \d+)")


def kind_of(name: str) -> str:
    """``"mug 2"`` -> ``"mug"``."""
    return name.rsplit(" ", 1)[0]


@dataclass
class Belief:
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
    def at_start(cls, goal: Goal, first: str) -> Belief:
        """From the first observation, which lists the receptacles."""
        return cls(goal, _ITEM.findall(first.split("Your task is to:")[0]))

    def see(self, action: str, text: str) -> None:
        """Take in the observation that answered ``action``."""
        words = action.split()
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


def plan(belief: Belief) -> list[str]:
    """The right actions from here on as far as they are known; ends early where something must be found first."""
    goal, held = belief.goal, belief.holding
    steps: list[str] = []
    if held is not None and kind_of(held) != goal.object:
        return [f"move {held} to {belief.here}"]
    at = belief.here
    if held is None:
        found = belief.where(goal.object)
        if found is None:
            return _search(belief)
        held, place = found
        steps += _approach(belief, at, place) + [f"take {held} from {place}"]
        at = place
    if goal.lamp is not None:
        lamp = belief.where(goal.lamp)
        if lamp is None:
            return steps + (_search(belief) if not steps else [])
        return steps + _approach(belief, at, lamp[1]) + [f"use {lamp[0]}"]
    if not belief.ready(held) and goal.state is not None:
        device = next((r for r in belief.receptacles if kind_of(r) == DEVICES[goal.state]), None)
        if device is not None:
            steps += ([] if at == device else [f"go to {device}"]) + [f"{VERBS[goal.state]} {held} with {device}"]
            at = device
    target = next((r for r in belief.receptacles if kind_of(r) == goal.destination), None)
    if target is None:
        return steps
    if belief.placed:  # two objects belong into the same kind of place; keep to the one already used
        target = next(iter(belief.placed.values()))
    return steps + _approach(belief, at, target) + [f"move {held} to {target}"]


def _approach(belief: Belief, at: str | None, place: str) -> list[str]:
    steps = [] if at == place else [f"go to {place}"]
    return steps + ([f"open {place}"] if place in belief.closed else [])


def _search(belief: Belief) -> list[str]:
    if belief.here in belief.closed:
        return [f"open {belief.here}"]
    return [f"go to {r}" for r in belief.unexplored()[:1]]


def right_actions(belief: Belief) -> set[str]:
    """Every next action that a careful agent could take: the plan's first, or any unexplored place."""
    steps = plan(belief)
    if not steps:
        return set()
    needs = belief.goal.lamp if belief.holding is not None else belief.goal.object
    searching = steps[0].startswith("go to ") and (needs is None or belief.where(needs) is None)
    if searching and belief.unexplored() and steps == _search(belief):
        return {f"go to {r}" for r in belief.unexplored()}
    if steps[0].startswith("go to "):
        place = steps[0].removeprefix("go to ")
        if kind_of(place) == belief.goal.destination and belief.holding and belief.ready(belief.holding):
            return {f"go to {r}" for r in belief.receptacles if kind_of(r) == kind_of(place)}
    return {steps[0]}


def thought(belief: Belief) -> str:
    """A short subgoal, e.g. ``find mug``, ``heat mug 1``, ``put mug 1``."""
    goal, held = belief.goal, belief.holding
    if held is None:
        return f"find {goal.object}"
    if kind_of(held) != goal.object:
        return f"drop {held}"
    if goal.lamp is not None:
        return f"find {goal.lamp}"
    if not belief.ready(held) and goal.state is not None:
        return f"{VERBS[goal.state]} {held}"
    return f"put {held}"


@dataclass(frozen=True)
class Temperament:
    """How an agent errs. ``slip``: rate of needless actions; ``forgets``: skips heating, cooling, cleaning.

    ``habit``: share of slips that are the same one in the same situation (walking past what should be used,
    going back to where it came from). Diffuse slips vanish when sampling is cooled; habits must be unlearnt.
    """

    slip: float
    habit: float
    forgets: bool


def choose(
    belief: Belief, admissible: Sequence[str], actions: Sequence[str], who: Temperament, rng: np.random.Generator
) -> str:
    """The agent's next action: a right one, or with rate ``slip`` a needless admissible one."""
    if who.forgets and belief.holding and kind_of(belief.holding) == belief.goal.object:
        belief = replace(belief, goal=replace(belief.goal, state=None))
    right = [a for a in _in_house_order(belief, right_actions(belief)) if a in admissible]
    if right and rng.random() >= who.slip:
        return right[0] if rng.random() < who.habit else str(rng.choice(right))
    habit = _habitual_slip(belief, actions)
    if habit in admissible and rng.random() < who.habit:
        return habit
    options = [a for a in _slips(belief, admissible) if [*actions[-2:], a] != [a, a, a]]
    return str(rng.choice(options or sorted(admissible)))


def _in_house_order(belief: Belief, actions: set[str]) -> list[str]:
    order = {f"go to {r}": k for k, r in enumerate(belief.receptacles)}
    return sorted(actions, key=lambda a: (order.get(a, -1), a))


def _habitual_slip(belief: Belief, actions: Sequence[str]) -> str:
    """Walk past to the next unexplored place where something should be done; else back to the last place."""
    right = right_actions(belief)
    if right and not any(a.startswith("go to ") for a in right):
        for place in belief.unexplored():
            if place != belief.here:
                return f"go to {place}"
    went = [a for a in actions if a.startswith("go to ") and a != f"go to {belief.here}" and a not in right]
    return went[-1] if went else ""


def _slips(belief: Belief, admissible: Sequence[str]) -> list[str]:
    """Needless actions, those that lose time weighted highest: going somewhere seen, taking the wrong thing."""
    right = right_actions(belief)
    go = [a for a in admissible if a.startswith("go to ") and a not in right]
    seen = [a for a in go if a.removeprefix("go to ") in belief.contents]
    take = [a for a in admissible if a.startswith("take ") and a not in right]
    idle = [a for a in admissible if a.startswith(("examine ", "close ", "look"))]
    return sorted(seen * 3 + go + take + idle[:1])


@dataclass(frozen=True)
class Mistake:
    """A turn whose action was not a right one, and what would have been right there."""

    turn: int
    cause: str
    better: tuple[str, ...]

    def rescues(self, max_turns: int) -> bool:
        """What is better is known up to the delivery and still fits the step limit."""
        delivers = self.better and self.better[-1].startswith(("move ", "use "))
        return bool(delivers) and self.turn + len(self.better) <= max_turns


def belief_after(goal: Goal, first: str, answers: Sequence[tuple[str, str]]) -> Belief:
    """The belief of a reader of these (action, observation after it) pairs."""
    belief = Belief.at_start(goal, first)
    for action, text in answers:
        belief.see(action, text)
    return belief


def mistakes(goal: Goal, first: str, answers: Sequence[tuple[str, str]]) -> list[Mistake]:
    """Every turn of an episode of (action, observation after it) pairs that was not right when it was taken."""
    belief = Belief.at_start(goal, first)
    found = []
    for turn, (action, text) in enumerate(answers):
        if action not in right_actions(belief):
            found.append(Mistake(turn, _cause(belief, action), tuple(plan(belief))))
        belief.see(action, text)
    return found


def review(
    goal: Goal,
    first: str,
    answers: Sequence[tuple[str, str]],
    success: bool,
    max_turns: int,
    blundered: bool = False,
) -> dict[str, Any]:
    """The reflection a careful reader writes on an episode of (action, observation after it) pairs.

    Returns the JSON object of r3l.reflection. The pivot is the last mistake from which the rest of the task was
    known and still fitted the step limit, else the first mistake; a failure without one (time ran out) is
    retried from its last turn. A blunder (an impossible action that ended the episode) is its own pivot.
    """
    found = mistakes(goal, first, answers)
    if success and not found:
        return _report(answers, "success", None)
    if not found:
        found = [Mistake(len(answers) - 1, "no steps left", ())]
    if blundered:
        last = len(answers) - 1
        belief = belief_after(goal, first, answers[:last])
        return _report(answers, "failure", Mistake(last, "not possible there", tuple(plan(belief))))
    decisive = [m for m in found if m.rescues(max_turns)]
    return _report(
        answers,
        "success_but_inefficient" if success else "failure",
        decisive[-1] if decisive else found[0],
    )


def _report(answers: Sequence[tuple[str, str]], outcome: str, mistake: Mistake | None) -> dict[str, Any]:
    visited = len({action for action, _ in answers if action.startswith("go to ")})
    return {
        "trajectory_summary": f"{len(answers)} steps, {visited} places",
        "root_cause_analysis": mistake.cause if mistake else "no needless step",
        "trajectory_outcome": outcome,
        "improvement_suggestion": (", then ".join(mistake.better) or "look elsewhere") if mistake else None,
        "retry_from_step": mistake.turn if mistake else None,
    }


def _cause(belief: Belief, action: str) -> str:
    steps = plan(belief)
    place = action.removeprefix("go to ")
    if steps and steps[0].startswith("take "):
        return f"{' '.join(steps[0].split()[1:3])} seen but not taken"
    if action.startswith("take "):
        return f"{' '.join(action.split()[1:3])} is not needed"
    if belief.holding is not None and not belief.ready(belief.holding) and belief.goal.state is not None:
        return f"{belief.holding} needs {belief.goal.state}"
    if action.startswith("go to ") and place in belief.contents:
        return f"{place} seen before"
    return f"{action} does not help"
