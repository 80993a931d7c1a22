"""Procedurally generated houses on alfworld's domain: a pure function of task family, size and seed.

A house is one room with a few receptacles and objects (``rooms``). Its PDDL problem declares only what it
uses, so that Fast Downward translates it in tens of milliseconds (a published game takes 400). Goals and
their sentences come from alfworld's goal library.
"""

from __future__ import annotations

from collections import Counter

from r3l.envs.alfworld.goals import CLEAN, COOL, HEAT, TWO
from r3l.envs.alfworld.task_sets.rooms import (
    DEVICES,
    LAMP,
    Content,
    House,
    Rejected,
    Thing,
    able,
    choice,
    draw,
    holds,
    openable,
    tables,
)

from r3l.core.errors import ConfigError
from r3l.core.seeds import generator
from r3l.core.task import Task

_VERBS = {CLEAN: "clean", HEAT: "heat", COOL: "cool"}
_ATTEMPTS = 200


def generate(house: House, split: str = "", group: str = "") -> Task:
    """Generate the task of ``house``. Impossible draws are repeated with the next sub-seed.

    ``split``, ``group``: the task's, such as test and easy. ``payload``: ``pddl_problem``, ``goal_text``,
    ``walkthrough`` (a winning plan; ``validate`` plays it), ``family`` and ``rejected`` (reason -> number of
    rejected draws). Raises ConfigError if every draw is rejected.
    """
    rejected: Counter[str] = Counter()
    for attempt in range(_ATTEMPTS):
        rng = generator("alfworld house", house.family, house.receptacles, house.objects, house.seed, attempt)
        try:
            content = draw(house, rng)
        except Rejected as reason:
            rejected[str(reason)] += 1
            continue
        template = choice(tables()[1][house.family]["templates"], rng)
        goal_text = template.format(
            obj=content.target.lower(), recep=(content.destination or "").lower(), toggle=LAMP.lower()
        )
        payload = {
            "pddl_problem": _problem(house, content),
            "goal_text": goal_text,
            "walkthrough": _walkthrough(house, content),
            "family": house.family,
            "rejected": dict(sorted(rejected.items())),
        }
        return Task(house.id, "alfworld", split, group, payload)
    raise ConfigError(f"no room fits {house.id} ({dict(rejected)}); ask for fewer receptacles or objects")


def _walkthrough(house: House, content: Content) -> list[str]:
    """A winning plan: fetch, treat and deliver each required object."""
    here: Thing | None = None
    closed = {r for r in content.receptacles if openable(r.kind)}
    steps: list[str] = []

    def go(place: Thing, open_it: bool = True) -> None:
        nonlocal here
        if here != place:
            steps.append(f"go to {place.name}")
        if open_it and place in closed:
            steps.append(f"open {place.name}")
            closed.remove(place)
        here = place

    first = {r.kind: r for r in reversed(content.receptacles)}  # the first receptacle of each class
    count = 2 if house.family == TWO else 1
    wanted = [o for o in content.places if o.kind == content.target]
    for thing in wanted[:count]:
        source = content.places[thing]
        go(source)
        steps.append(f"take {thing.name} from {source.name}")
        if house.family in DEVICES:
            device = first[DEVICES[house.family]]
            go(device, open_it=False)  # clean, heat and cool work with a closed door
            steps.append(f"{_VERBS[house.family]} {thing.name} with {device.name}")
        if content.destination is None:
            lamp = next(o for o in content.places if o.kind == LAMP)
            go(content.places[lamp])
            steps.append(f"use {lamp.name}")
        else:
            destination = first[content.destination]
            go(destination)
            steps.append(f"move {thing.name} to {destination.name}")
    return steps


def _problem(house: House, content: Content) -> str:
    """The PDDL problem: each receptacle at its own location, the agent at another one, all doors closed."""
    receptacles = content.receptacles
    objects = list(content.places)
    object_kinds = sorted({o.kind for o in objects})
    receptacle_kinds = sorted({r.kind for r in receptacles})
    location = {r: f"loc_bar_{i}" for i, r in enumerate(receptacles, start=1)}

    # Declarations
    declared = ["agent1 - agent", *(f"{name} - location" for name in ("loc_bar_0", *location.values()))]
    declared += [f"{o.id} - object" for o in objects] + [f"{r.id} - receptacle" for r in receptacles]
    declared += [f"{kind}Type - otype" for kind in object_kinds]
    declared += [f"{kind}Type - rtype" for kind in receptacle_kinds]

    # Facts at the start
    facts = ["atLocation agent1 loc_bar_0"]
    for r_kind in receptacle_kinds:
        facts += [f"canContain {r_kind}Type {k}Type" for k in object_kinds if k != LAMP and holds(r_kind, k)]
    for r in receptacles:
        facts += [f"receptacleType {r.id} {r.kind}Type", f"receptacleAtLocation {r.id} {location[r]}"]
        if openable(r.kind):
            facts.append(f"openable {r.id}")
    for o in objects:
        place = content.places[o]
        facts += [f"objectType {o.id} {o.kind}Type", f"inReceptacle {o.id} {place.id}"]
        facts += [f"objectAtLocation {o.id} {location[place]}"]
        if o.kind == LAMP:
            facts.append(f"toggleable {o.id}")
            continue
        facts.append(f"pickupable {o.id}")
        for ability in ("Cleanable", "Heatable", "Coolable", "Sliceable"):
            if able(o.kind, ability):
                facts.append(f"{ability.lower()} {o.id}")
        if o.kind in tables()[0].MOVABLE_RECEPTACLES:
            facts.append(f"isReceptacleObject {o.id}")

    # Goal
    goal = tables()[1][house.family]["pddl"].replace("#", "-")
    goal = goal.format(obj=content.target, recep=content.destination, toggle=LAMP)
    lines = "\n".join(declared) + "\n)\n(:init\n(= (total-cost) 0)\n" + "\n".join(f"({f})" for f in facts)
    # alfworld's goal text includes the parenthesis that closes the problem.
    return f"(define (problem house)\n(:domain alfred)\n(:objects\n{lines}\n)\n{' '.join(goal.split())}\n"
