"""A scripted agent that knows a problem's solution and reads what the policy reads: it warm-starts the nano model.

It keeps track of what is done from the observed texts, errs at a given rate, comes back to the solution from
wherever an error led it, and reviews a finished episode: the first turn whose action was not the right one is the
pivot. A review names a thing only if the texts up to its pivot show it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from envs.scienceworld.brief import brief
from r3l.core.seeds import seed_of

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
class Belief:
    """What the texts so far say. ``solution``: right actions from the start, in order."""

    solution: Sequence[str]
    here: str = ""
    seen: dict[str, str] = field(default_factory=dict)  # place -> what was seen there, shortened
    done: set[str] = field(default_factory=set)  # actions other than going and looking that succeeded
    failed: bool = False

    @classmethod
    def at_start(cls, solution: Sequence[str], first: str) -> Belief:
        """From the first observation: the task, then what is seen."""
        belief = cls(solution)
        belief._look(first.partition("\n")[2])
        return belief

    def see(self, action: str, text: str) -> None:
        """Take in the observation that answered ``action``."""
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


def plan(belief: Belief) -> list[str]:
    """The right actions from here on. Empty when all is done or has failed."""
    if belief.failed:
        return []
    here, steps = belief.here, []
    for place, action in _with_places(belief):
        if action in belief.done or (action == LOOK and place in belief.seen):
            continue
        if here != place:
            steps.append(GO + place)
            here = place
        steps.append(action)
    return steps


def _with_places(belief: Belief) -> list[tuple[str, str]]:
    """(place, action) of every step of the solution that is not a walk."""
    place, found = next(iter(belief.seen), belief.here), []
    for action in belief.solution:
        if action.startswith(GO):
            place = action.removeprefix(GO)
        else:
            found.append((place, action))
    return found


def known_plan(belief: Belief) -> list[str]:
    """``plan`` as far as a reader can know it: it ends where something unseen would be named."""
    steps: list[str] = []
    for action in plan(belief):
        thing = _thing(action)
        if thing is not None and not belief.shows(thing):
            break
        steps.append(action)
    return steps


def _thing(action: str) -> str | None:
    """The thing an action names; None for going and looking."""
    for verb in (FOCUS, TAKE, PUT):
        if action.startswith(verb):
            return action.removeprefix(verb).split(" to ")[0]
    return None


def thought(belief: Belief) -> str:
    """A short subgoal, e.g. ``go outside``, ``focus dove egg``, ``put dove egg``."""
    steps = plan(belief)
    if not steps:
        return "nothing left"
    thing = _thing(steps[0])
    if thing is None:
        return f"go {steps[0].removeprefix(GO)}" if steps[0].startswith(GO) else "look"
    return {FOCUS: "focus ", TAKE: "take ", PUT: "put "}[_verb(steps[0])] + thing


def _verb(action: str) -> str:
    return next(verb for verb in (FOCUS, TAKE, PUT) if action.startswith(verb))


@dataclass(frozen=True)
class Temperament:
    """How an agent errs. ``slip``: rate of needless or wrong actions; ``forgets``: takes before it has focused.

    ``habit``: share of slips that are the same one in the same situation (going to the same wrong place, focusing
    on the same wrong thing). Diffuse slips vanish when sampling is cooled; habits must be unlearnt.
    """

    slip: float
    habit: float
    forgets: bool


def choose(belief: Belief, actions: Sequence[str], who: Temperament, rng: np.random.Generator) -> str:
    """The agent's next action: the right one, or with rate ``slip`` another."""
    steps = plan(belief)
    right = steps[0] if steps else LOOK
    if who.forgets and right.startswith(FOCUS) and len(steps) > 1 and steps[1].startswith(TAKE):
        right = steps[1]
    if steps and rng.random() >= who.slip:
        return right
    options = [a for a in _slips(belief, right) if [*actions[-2:], a] != [a, a, a]]
    if rng.random() < who.habit:  # the same in the same situation: place, and what is to be done there
        return options[seed_of("habit", belief.here, thought(belief).split()[0]) % len(options)]
    return str(rng.choice(options))


def _slips(belief: Belief, right: str) -> list[str]:
    """Wrong actions: going elsewhere, looking again, and where something is to be focused on, the wrong thing."""
    wrong = [GO + place for place in PLACES if place != belief.here and GO + place != right]
    if right.startswith(FOCUS):
        others = [name for name in _listed(belief) if FOCUS + name not in belief.solution]
        return [FOCUS + name for name in others] + [TAKE + name for name in others] + wrong[:2] + [LOOK]
    return [*wrong, LOOK]


def _listed(belief: Belief) -> list[str]:
    """Things seen here, without what is in or on them."""
    text = belief.seen.get(belief.here, "").partition(": ")[2].removesuffix(" ...")
    while (bare := re.sub(r" ?\([^()]*\)", "", text)) != text:
        text = bare
    return [name for name in text.split(", ") if name]


@dataclass(frozen=True)
class Mistake:
    """A turn whose action was not the right one, why, and what would have been right there."""

    turn: int
    cause: str
    better: tuple[str, ...]
    complete: bool  # ``better`` goes on to the end of the task

    def rescues(self, max_turns: int) -> bool:
        """Everything left is known and still fits the step limit."""
        return self.complete and self.turn + len(self.better) <= max_turns


def belief_after(solution: Sequence[str], first: str, answers: Sequence[tuple[str, str]]) -> Belief:
    """The belief of a reader of these (action, observation after it) pairs."""
    belief = Belief.at_start(solution, first)
    for action, text in answers:
        belief.see(action, text)
    return belief


def mistakes(solution: Sequence[str], first: str, answers: Sequence[tuple[str, str]]) -> list[Mistake]:
    """Every turn of an episode of (action, observation after it) pairs that was not right when it was taken."""
    belief = Belief.at_start(solution, first)
    found = []
    for turn, (action, text) in enumerate(answers):
        steps = plan(belief)
        if steps and action != steps[0]:
            known = known_plan(belief)
            found.append(Mistake(turn, _cause(belief, action, text), tuple(known), known == steps))
        belief.see(action, text)
    return found


def review(
    solution: Sequence[str], first: str, answers: Sequence[tuple[str, str]], success: bool, max_turns: int
) -> dict[str, Any]:
    """The reflection a careful reader writes on an episode of (action, observation after it) pairs.

    Returns the JSON object of r3l.reflection. The pivot is the last mistake from which the rest of the task was
    known and still fitted the step limit, else the first mistake; a failure without one is retried from its last turn.
    """
    found = mistakes(solution, first, answers)
    if success and not found:
        return _report(answers, "success", None)
    if not found:
        found = [Mistake(len(answers) - 1, "no steps left", (), False)]
    decisive = [m for m in found if m.rescues(max_turns)]
    return _report(answers, "success_but_inefficient" if success else "failure", decisive[-1] if decisive else found[0])


def _report(answers: Sequence[tuple[str, str]], outcome: str, mistake: Mistake | None) -> dict[str, Any]:
    visited = len({action for action, _ in answers if action.startswith(GO)})
    return {
        "trajectory_summary": f"{len(answers)} steps, {visited} places",
        "root_cause_analysis": mistake.cause if mistake else "no needless step",
        "trajectory_outcome": outcome,
        "improvement_suggestion": (", then ".join(mistake.better) or "look elsewhere") if mistake else None,
        "retry_from_step": mistake.turn if mistake else None,
    }


def _cause(belief: Belief, action: str, text: str) -> str:
    if text.startswith(_CONFUSED) or not text:
        return f"{action} is not possible"
    if action.startswith(FOCUS):
        return f"{action.removeprefix(FOCUS)} is wrong"
    if action.startswith(TAKE) and plan(belief)[0].startswith(FOCUS):
        return "taken before focusing"
    if action.startswith(GO):
        return f"nothing to do in {action.removeprefix(GO)}"
    return f"{action} does not help"
