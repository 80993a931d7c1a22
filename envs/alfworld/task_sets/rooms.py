"""What stands where in a house of our own: a room's receptacles, its objects and the goal, drawn from a seed.

What contains what and what can be heated are alfworld's own tables (``alfworld.gen``); which classes a room has
are ours, after its layouts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from r3l.envs.alfworld.goals import CLEAN, COOL, FAMILIES, HEAT, LOOK, SIMPLE, TWO

from r3l.core.errors import ConfigError

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
LAMP = "DeskLamp"
_LAMP_STANDS = {"Desk", "SideTable", "Dresser", "CoffeeTable", "DiningTable", "Shelf"}
DEVICES = {CLEAN: "SinkBasin", HEAT: "Microwave", COOL: "Fridge"}
_BASINS = {"SinkBasin": "Sink", "BathtubBasin": "Bathtub"}  # alfworld's demangler adds the "basin" itself
_SECOND_TARGET = 0.7  # chance of a further instance of the target class, else of one of its group
_OPENABLE_WEIGHT = 0.5  # published games keep a fifth of their objects in openables
_MOST_OF_A_KIND = 3


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
        return f"house-{self.family}-r{self.receptacles}-o{self.objects}-s{self.seed}"


@dataclass(frozen=True)
class Thing:
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
class Content:
    """A drawn room: where every object is, and what is asked for."""

    receptacles: tuple[Thing, ...]
    places: Mapping[Thing, Thing]  # object -> receptacle
    target: str
    destination: str | None


class Rejected(Exception):
    """A draw that cannot become a task; the message is the reason it is counted under."""


@lru_cache(maxsize=1)
def tables() -> tuple[Any, Mapping[str, Any]]:
    """alfworld's own constants and goal library; neither imports anything heavy."""
    from alfworld.gen import constants, goal_library

    return constants, goal_library.gdict


def holds(receptacle: str, kind: str) -> bool:
    """Whether a receptacle of that class may hold an object of class ``kind``."""
    if kind == LAMP:
        return receptacle in _LAMP_STANDS
    return kind in tables()[0].VAL_RECEPTACLE_OBJECTS[receptacle]


def openable(receptacle: str) -> bool:
    """Whether receptacles of that class have a door."""
    return receptacle in tables()[0].OPENABLE_CLASS_SET


def able(kind: str, ability: str) -> bool:
    """Whether ``kind`` is ``Cleanable``, ``Heatable``, ``Coolable`` or ``Sliceable``."""
    return kind in tables()[0].VAL_ACTION_OBJECTS[ability]


def draw(house: House, rng: np.random.Generator) -> Content:
    """One draw of ``house``. Raises Rejected, with the reason, where it cannot become a task."""
    rooms = sorted(tables()[0].GOALS_VALID[house.family])
    room = str(rng.choice(rooms))
    receptacles = _draw_receptacles(house, room, rng)
    groups = [group.split() for group in _OBJECTS[room].split("|")]
    destination, target = _draw_goal(house, {r.kind for r in receptacles}, sum(groups, []), rng)
    kinds = _draw_objects(house, target, groups, rng)
    objects = _numbered(kinds + ([LAMP] if house.family == LOOK else []), rng)
    # Where the state is what is asked for, an object may lie at its destination from the start.
    barred = destination if house.family in (SIMPLE, TWO) else None
    places = {o: _place(o, receptacles, barred if o.kind == target else None, rng) for o in objects}
    return Content(receptacles, places, target, destination)


def _draw_receptacles(house: House, room: str, rng: np.random.Generator) -> tuple[Thing, ...]:
    pool = [kind for entry in _ROOMS[room].split(",") for kind in _repeated(entry)]
    needed = [DEVICES[house.family]] if house.family in DEVICES else []
    if house.family == LOOK:
        needed = [str(rng.choice(sorted(_LAMP_STANDS & set(pool))))]
    for kind in needed:
        pool.remove(kind)
    missing = house.receptacles - len(needed)
    if missing > len(pool):
        raise Rejected("room too small")
    return _numbered(needed + [pool[i] for i in rng.permutation(len(pool))[:missing]], rng)


def _repeated(entry: str) -> list[str]:
    kind, count = entry.split()
    return [kind] * int(count)


def _draw_goal(
    house: House, receptacles: set[str], kinds: Sequence[str], rng: np.random.Generator
) -> tuple[str | None, str]:
    """(destination, target): the destination's class is drawn first, so that no large one dominates."""
    ability = {CLEAN: "Cleanable", HEAT: "Heatable", COOL: "Coolable"}.get(house.family)
    candidates = sorted(k for k in kinds if ability is None or able(k, ability))
    if house.family == LOOK:
        fitting = [kind for kind in candidates if any(holds(r, kind) for r in receptacles)]
        return None, choice(fitting, rng)
    options: dict[str, list[str]] = {}
    for destination in sorted(receptacles - {DEVICES.get(house.family)}):
        others = receptacles - {destination}
        options[destination] = [
            k for k in candidates if holds(destination, k) and any(holds(other, k) for other in others)
        ]
    destination = choice([destination for destination, fitting in options.items() if fitting], rng)
    return destination, choice(options[destination], rng)


def _draw_objects(house: House, target: str, groups: Sequence[Sequence[str]], rng: np.random.Generator) -> list[str]:
    """The target, once or as often as the task needs, with look-alikes first and anything of the room after."""
    drawn = [target] * (2 if house.family == TWO else 1)
    kin = [kind for kind in next(g for g in groups if target in g) if kind != target]
    if rng.random() < _SECOND_TARGET or not kin:
        drawn.append(target)
    elif len(drawn) < house.objects:
        drawn.append(choice(kin, rng))
    everything = [kind for kind in sum(map(list, groups), []) if kind != target] * _MOST_OF_A_KIND
    for kind in drawn:
        if kind != target:
            everything.remove(kind)
    missing = house.objects - len(drawn)
    if not 0 <= missing <= len(everything):
        raise Rejected("number of objects")
    return drawn + [everything[i] for i in rng.permutation(len(everything))[:missing]]


def _numbered(kinds: Iterable[str], rng: np.random.Generator) -> tuple[Thing, ...]:
    """Instances in drawn order, numbered in another one: number 1 must not mean "drawn first"."""
    listed = list(kinds)
    numbers = {kind: [int(n) + 1 for n in rng.permutation(count)] for kind, count in sorted(Counter(listed).items())}
    return tuple(Thing(kind, numbers[kind].pop()) for kind in listed)


def _place(thing: Thing, receptacles: Sequence[Thing], barred: str | None, rng: np.random.Generator) -> Thing:
    fitting = [r for r in receptacles if holds(r.kind, thing.kind) and r.kind != barred]
    if not fitting:
        raise Rejected("no place for an object")
    weights = np.array([_OPENABLE_WEIGHT if openable(r.kind) else 1.0 for r in fitting])
    return fitting[int(rng.choice(len(fitting), p=weights / weights.sum()))]


def choice(options: Sequence[str], rng: np.random.Generator) -> str:
    """One of ``options``, all alike. Raises Rejected where there is none."""
    if not options:
        raise Rejected("no target and destination")
    return options[int(rng.integers(len(options)))]
