"""Houses of our own on alfworld's domain: the embedded task source, a pure function of family, seed and size.

A house is one room with a few receptacles and objects, written as a PDDL problem that declares only what it
uses, so that Fast Downward translates it in tens of milliseconds (a published game takes 400). What contains
what, what can be heated, the goals and their sentences are alfworld's own tables (``alfworld.gen``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from envs.alfworld.goals import CLEAN, COOL, FAMILIES, HEAT, LOOK, SIMPLE, TWO, Goal, parse_goal
from r3l.core.environment import Environment
from r3l.core.errors import ConfigError, DataError
from r3l.core.seeds import generator
from r3l.core.task import Task

__all__ = ["FAMILIES", "Goal", "House", "generate", "parse_goal", "prove"]

# Receptacle classes of each room, each with how many a room has at most (alfworld.gen.layouts shows more).
_ROOMS: Mapping[str, str] = {
    "Kitchen": "CounterTop 3, Cabinet 4, Drawer 4, Fridge 1, Microwave 1, SinkBasin 1, DiningTable 1, Shelf 2,"
    " StoveBurner 2, CoffeeMachine 1, GarbageCan 1, SideTable 1",
    "LivingRoom": "Sofa 1, ArmChair 2, CoffeeTable 1, SideTable 2, DiningTable 1, Shelf 2, Drawer 3, Dresser 1,"
    " Cabinet 2, GarbageCan 1, Safe 1, Ottoman 1, Desk 1",
    "Bedroom": "Bed 1, Desk 2, Drawer 4, SideTable 2, Shelf 3, Dresser 1, GarbageCan 1, Safe 1, ArmChair 1,"
    " LaundryHamper 1, Cabinet 2",
    "Bathroom": "Toilet 1, SinkBasin 2, CounterTop 1, Cabinet 4, Drawer 3, GarbageCan 1, BathtubBasin 1,"
    " HandTowelHolder 2, ToiletPaperHanger 1, Shelf 2, SideTable 1",
}
# Pickupable classes of each room; the groups hold what is easily mistaken for one another.
_OBJECTS: Mapping[str, str] = {
    "Kitchen": "Apple Tomato Potato Egg Lettuce Bread | Mug Cup Bowl Plate"
    " | Knife ButterKnife Fork Spoon Spatula Ladle"
    " | Pan Pot Kettle | SaltShaker PepperShaker | SoapBottle DishSponge | WineBottle Glassbottle Vase",
    "LivingRoom": "Book Newspaper Box TissueBox | KeyChain CreditCard Watch | RemoteControl Laptop CellPhone"
    " | Statue Vase WateringCan Candle | Plate Bowl | Pillow | Pen Pencil",
    "Bedroom": "Book Box TissueBox | CD CellPhone AlarmClock Laptop RemoteControl | Pen Pencil"
    " | KeyChain CreditCard Watch | Mug Bowl Vase | Pillow Cloth | BaseballBat BasketBall TennisRacket",
    "Bathroom": "SoapBar SoapBottle SprayBottle | Cloth HandTowel DishSponge"
    " | ToiletPaper TissueBox | Candle | Plunger",
}
_LAMP = "DeskLamp"
_LAMP_STANDS = {"Desk", "SideTable", "Dresser", "CoffeeTable", "DiningTable", "Shelf"}
_DEVICES = {CLEAN: "SinkBasin", HEAT: "Microwave", COOL: "Fridge"}
_VERBS = {CLEAN: "clean", HEAT: "heat", COOL: "cool"}
_BASINS = {"SinkBasin": "Sink", "BathtubBasin": "Bathtub"}  # alfworld's demangler adds the "basin" itself
_SECOND_TARGET = 0.7  # chance of a further instance of the target class, else of one of its group
_OPENABLE_WEIGHT = 0.5  # published games keep a fifth of their objects in openables
_MOST_OF_A_KIND = 3
_ATTEMPTS = 200


@dataclass(frozen=True)
class House:
    """What a house is drawn from. Raises ConfigError for a family or size that cannot be."""

    family: str
    seed: int
    receptacles: int = 6
    objects: int = 8

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise ConfigError(f"task family {self.family!r} is unknown; it is one of {', '.join(FAMILIES)}")
        if self.receptacles < 3 or self.objects < 2:
            raise ConfigError(
                f"a house needs at least 3 receptacles and 2 objects, not {self.receptacles} and {self.objects}"
            )

    @property
    def id(self) -> str:
        """The task id."""
        return f"house-{self.family}-r{self.receptacles}-o{self.objects}-s{self.seed}"


@dataclass(frozen=True)
class _Thing:
    """An object or a receptacle: the ``number``-th of its class."""

    kind: str
    number: int

    @property
    def name(self) -> str:
        """As displayed, e.g. ``sinkbasin 1``."""
        return f"{self.kind.lower()} {self.number}"

    @property
    def id(self) -> str:
        """As in PDDL. alfworld numbers the instances of a class downwards in the order of their ids."""
        stem = _BASINS.get(self.kind, self.kind)
        return f"{stem}_bar_{99 - self.number}" + (f"_bar_{self.kind}" if self.kind in _BASINS else "")


@dataclass(frozen=True)
class _Content:
    """A drawn room: where every object is, and what is asked for."""

    receptacles: tuple[_Thing, ...]
    places: Mapping[_Thing, _Thing]  # object -> receptacle
    target: str
    destination: str | None


class _Rejected(Exception):
    """A draw that cannot become a task; the message is the reason it is counted under."""


def generate(family: str, seed: int, receptacles: int = 6, objects: int = 8, split: str = "", group: str = "") -> Task:
    """The house of ``family`` and ``seed``. Impossible draws are redrawn from the next sub-seed.

    ``payload``: ``pddl_problem``, ``goal_text``, ``walkthrough`` (a winning plan by rule; ``prove`` plays it),
    ``family`` and ``rejected`` (reason -> number of redrawn attempts). Raises ConfigError when no attempt fits.
    """
    house = House(family, seed, receptacles, objects)
    rejected: Counter[str] = Counter()
    for attempt in range(_ATTEMPTS):
        rng = generator("alfworld house", family, receptacles, objects, seed, attempt)
        try:
            content = _draw(house, rng)
        except _Rejected as reason:
            rejected[str(reason)] += 1
            continue
        payload = {
            "pddl_problem": _problem(house, content),
            "goal_text": _sentence(house, content, rng),
            "walkthrough": _walkthrough(house, content),
            "family": family,
            "rejected": dict(sorted(rejected.items())),
        }
        return Task(house.id, "alfworld", split, group, payload)
    raise ConfigError(f"no room fits {house.id} ({dict(rejected)}); ask for fewer receptacles or objects")


def prove(task: Task, engine: Environment) -> Task:
    """``task`` with the walkthrough that won when played. Raises DataError when it does not win, or too early."""
    now, played = engine.reset(task), list[str]()
    for action in task.payload["walkthrough"]:
        if now.success or action not in now.admissible:
            raise DataError(f"{task.id}: {action!r} is not needed or not possible after {played}")
        now = engine.step(action)
        played.append(action)
    if not now.success:
        raise DataError(f"{task.id}: its walkthrough {played} does not win")
    return replace(task, payload={**task.payload, "walkthrough": played})


# Drawing


@lru_cache(maxsize=1)
def _tables() -> tuple[Any, Mapping[str, Any]]:
    """alfworld's own constants and goal library; neither imports anything heavy."""
    from alfworld.gen import constants, goal_library

    return constants, goal_library.gdict


def _holds(receptacle: str, kind: str) -> bool:
    if kind == _LAMP:
        return receptacle in _LAMP_STANDS
    return kind in _tables()[0].VAL_RECEPTACLE_OBJECTS[receptacle]


def _openable(receptacle: str) -> bool:
    return receptacle in _tables()[0].OPENABLE_CLASS_SET


def _able(kind: str, ability: str) -> bool:
    return kind in _tables()[0].VAL_ACTION_OBJECTS[ability]


def _draw(house: House, rng: np.random.Generator) -> _Content:
    rooms = sorted(_tables()[0].GOALS_VALID[house.family])
    room = str(rng.choice(rooms))
    receptacles = _draw_receptacles(house, room, rng)
    groups = [group.split() for group in _OBJECTS[room].split("|")]
    destination, target = _draw_goal(house, {r.kind for r in receptacles}, sum(groups, []), rng)
    kinds = _draw_objects(house, target, groups, rng)
    objects = _numbered(kinds + ([_LAMP] if house.family == LOOK else []), rng)
    # Where the state is what is asked for, an object may lie at its destination from the start.
    barred = destination if house.family in (SIMPLE, TWO) else None
    places = {o: _place(o, receptacles, barred if o.kind == target else None, rng) for o in objects}
    return _Content(receptacles, places, target, destination)


def _draw_receptacles(house: House, room: str, rng: np.random.Generator) -> tuple[_Thing, ...]:
    pool = [kind for entry in _ROOMS[room].split(",") for kind in _repeated(entry)]
    chosen = [_DEVICES[house.family]] if house.family in _DEVICES else []
    if house.family == LOOK:
        chosen = [str(rng.choice(sorted(_LAMP_STANDS & set(pool))))]
    for kind in chosen:
        pool.remove(kind)
    missing = house.receptacles - len(chosen)
    if missing > len(pool):
        raise _Rejected("room too small")
    chosen += [pool[i] for i in rng.permutation(len(pool))[:missing]]
    return _numbered(chosen, rng)


def _repeated(entry: str) -> list[str]:
    kind, count = entry.split()
    return [kind] * int(count)


def _draw_goal(
    house: House, receptacles: set[str], kinds: Sequence[str], rng: np.random.Generator
) -> tuple[str | None, str]:
    """(destination, target): the destination's class is drawn first, so that no large one dominates."""
    ability = {CLEAN: "Cleanable", HEAT: "Heatable", COOL: "Coolable"}.get(house.family)
    able = sorted(k for k in kinds if ability is None or _able(k, ability))
    if house.family == LOOK:
        fitting = [kind for kind in able if any(_holds(r, kind) for r in receptacles)]
        return None, _choice(fitting, rng)
    options: dict[str, list[str]] = {}
    for destination in sorted(receptacles - {_DEVICES.get(house.family)}):
        others = receptacles - {destination}
        options[destination] = [k for k in able if _holds(destination, k) and any(_holds(other, k) for other in others)]
    chosen = _choice([destination for destination, fitting in options.items() if fitting], rng)
    return chosen, _choice(options[chosen], rng)


def _draw_objects(house: House, target: str, groups: Sequence[Sequence[str]], rng: np.random.Generator) -> list[str]:
    """The target, once or as often as asked, with look-alikes first and anything of the room after."""
    drawn = [target] * (2 if house.family == TWO else 1)
    kin = [kind for kind in next(g for g in groups if target in g) if kind != target]
    if rng.random() < _SECOND_TARGET or not kin:
        drawn.append(target)
    elif len(drawn) < house.objects:
        drawn.append(_choice(kin, rng))
    everything = [kind for kind in sum(map(list, groups), []) if kind != target] * _MOST_OF_A_KIND
    for kind in drawn:
        if kind != target:
            everything.remove(kind)
    missing = house.objects - len(drawn)
    if not 0 <= missing <= len(everything):
        raise _Rejected("number of objects")
    return drawn + [everything[i] for i in rng.permutation(len(everything))[:missing]]


def _numbered(kinds: Iterable[str], rng: np.random.Generator) -> tuple[_Thing, ...]:
    """Instances in drawn order, numbered in another one: number 1 must not mean "drawn first"."""
    listed = list(kinds)
    numbers = {kind: [int(n) + 1 for n in rng.permutation(count)] for kind, count in sorted(Counter(listed).items())}
    return tuple(_Thing(kind, numbers[kind].pop()) for kind in listed)


def _place(thing: _Thing, receptacles: Sequence[_Thing], barred: str | None, rng: np.random.Generator) -> _Thing:
    fitting = [r for r in receptacles if _holds(r.kind, thing.kind) and r.kind != barred]
    if not fitting:
        raise _Rejected("no place for an object")
    weights = np.array([_OPENABLE_WEIGHT if _openable(r.kind) else 1.0 for r in fitting])
    return fitting[int(rng.choice(len(fitting), p=weights / weights.sum()))]


def _choice(options: Sequence[str], rng: np.random.Generator) -> str:
    if not options:
        raise _Rejected("no target and destination")
    return options[int(rng.integers(len(options)))]


# Writing


def _sentence(house: House, content: _Content, rng: np.random.Generator) -> str:
    template = _choice(_tables()[1][house.family]["templates"], rng)
    destination = (content.destination or "").lower()
    return template.format(obj=content.target.lower(), recep=destination, toggle=_LAMP.lower())


def _walkthrough(house: House, content: _Content) -> list[str]:
    """A winning plan: fetch, treat, bring; once for each object asked for."""
    here: _Thing | None = None
    closed = {r for r in content.receptacles if _openable(r.kind)}
    steps: list[str] = []

    def go(place: _Thing, open_it: bool = True) -> None:
        nonlocal here
        if here != place:
            steps.append(f"go to {place.name}")
        if open_it and place in closed:
            steps.append(f"open {place.name}")
            closed.remove(place)
        here = place

    first = {r.kind: r for r in reversed(content.receptacles)}
    wanted = [o for o in content.places if o.kind == content.target][: 2 if house.family == TWO else 1]
    for thing in wanted:
        source = content.places[thing]
        go(source)
        steps.append(f"take {thing.name} from {source.name}")
        if house.family in _DEVICES:
            device = first[_DEVICES[house.family]]
            go(device, open_it=False)  # clean, heat and cool work with closed doors
            steps.append(f"{_VERBS[house.family]} {thing.name} with {device.name}")
        if content.destination is None:
            lamp = next(o for o in content.places if o.kind == _LAMP)
            go(content.places[lamp])
            steps.append(f"use {lamp.name}")
        else:
            destination = first[content.destination]
            go(destination)
            steps.append(f"move {thing.name} to {destination.name}")
    return steps


def _problem(house: House, content: _Content) -> str:
    """The PDDL problem: every receptacle at a place of its own, the agent at one more, all doors closed."""
    receptacles, objects = content.receptacles, list(content.places)
    kinds, stands = sorted({o.kind for o in objects}), sorted({r.kind for r in receptacles})
    location = {r: f"loc_bar_{i}" for i, r in enumerate(receptacles, start=1)}
    declared = ["agent1 - agent", *(f"{name} - location" for name in ("loc_bar_0", *location.values()))]
    declared += [f"{o.id} - object" for o in objects] + [f"{r.id} - receptacle" for r in receptacles]
    declared += [f"{kind}Type - otype" for kind in kinds] + [f"{stand}Type - rtype" for stand in stands]
    facts = ["atLocation agent1 loc_bar_0"]
    facts += [f"canContain {s}Type {k}Type" for s in stands for k in kinds if k != _LAMP and _holds(s, k)]
    for r in receptacles:
        facts += [f"receptacleType {r.id} {r.kind}Type", f"receptacleAtLocation {r.id} {location[r]}"]
        facts += [f"openable {r.id}"] if _openable(r.kind) else []
    for o in objects:
        place = content.places[o]
        facts += [f"objectType {o.id} {o.kind}Type", f"inReceptacle {o.id} {place.id}"]
        facts += [f"objectAtLocation {o.id} {location[place]}"]
        facts += [f"{predicate} {o.id}" for predicate in _traits(o.kind)]
    goal = _tables()[1][house.family]["pddl"].replace("#", "-")
    goal = goal.format(obj=content.target, recep=content.destination, toggle=_LAMP)
    lines = "\n".join(declared) + "\n)\n(:init\n(= (total-cost) 0)\n" + "\n".join(f"({f})" for f in facts)
    # alfworld's goal text brings the parenthesis that closes the problem.
    return f"(define (problem house)\n(:domain alfred)\n(:objects\n{lines}\n)\n{' '.join(goal.split())}\n"


def _traits(kind: str) -> list[str]:
    if kind == _LAMP:
        return ["toggleable"]
    traits = [ability.lower() for ability in ("Cleanable", "Heatable", "Coolable", "Sliceable") if _able(kind, ability)]
    movable = ["isReceptacleObject"] if kind in _tables()[0].MOVABLE_RECEPTACLES else []
    return ["pickupable", *traits, *movable]
