"""Random contents of a generated house: the receptacles and objects of a room, and the goal.

alfworld's tables (``alfworld.gen``) say which receptacles may hold an object and what can be heated; the
classes of each room are ours, after its layouts.
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

# Receptacle classes of each room with their maximum numbers (alfworld.gen.layouts has higher ones).
_ROOMS: Mapping[str, str] = {
    "Kitchen": "CounterTop 3, Cabinet 4, Drawer 4, Fridge 1, Microwave 1, SinkBasin 1, DiningTable 1,"
    " Shelf 2, StoveBurner 2, CoffeeMachine 1, GarbageCan 1, SideTable 1",
    "LivingRoom": "Sofa 1, ArmChair 2, CoffeeTable 1, SideTable 2, DiningTable 1, Shelf 2, Drawer 3,"
    " Dresser 1, Cabinet 2, GarbageCan 1, Safe 1, Ottoman 1, Desk 1",
    "Bedroom": "Bed 1, Desk 2, Drawer 4, SideTable 2, Shelf 3, Dresser 1, GarbageCan 1, Safe 1, ArmChair 1,"
    " LaundryHamper 1, Cabinet 2",
    "Bathroom": "Toilet 1, SinkBasin 2, CounterTop 1, Cabinet 4, Drawer 3, GarbageCan 1, BathtubBasin 1,"
    " HandTowelHolder 2, ToiletPaperHanger 1, Shelf 2, SideTable 1",
}
# Pickupable classes of each room; the groups are of objects that are easily mistaken for one another.
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
_BASINS = {"SinkBasin": "Sink", "BathtubBasin": "Bathtub"}  # alfworld's demangler appends "basin"
_SECOND_TARGET = 0.7  # probability of one more instance of the target class, else of its group
_OPENABLE_WEIGHT = 0.5  # in published games a fifth of the objects are in openable receptacles
_MOST_OF_A_KIND = 3


@dataclass(frozen=True)
class House:
    """Parameters of a generated house. Raises ConfigError for an unknown family or an impossible size.

    ``family``: the task type, one of ``goals.FAMILIES``. ``receptacles``, ``objects``: their numbers.
    """

    family: str
    seed: int
    receptacles: int = 6
    objects: int = 8

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise ConfigError(f"task family {self.family!r} is unknown; it is one of {', '.join(FAMILIES)}")
        if self.receptacles < 3 or self.objects < 2:
            size = f"{self.receptacles} and {self.objects}"
            raise ConfigError(f"a house needs at least 3 receptacles and 2 objects, not {size}")

    @property
    def id(self) -> str:
        return f"house-{self.family}-r{self.receptacles}-o{self.objects}-s{self.seed}"


@dataclass(frozen=True)
class Thing:
    """An object or receptacle of a house: its class as in alfworld's tables (``Mug``), its number from 1."""

    kind: str
    number: int

    @property
    def name(self) -> str:
        """Displayed name, e.g. ``sinkbasin 1``."""
        return f"{self.kind.lower()} {self.number}"

    @property
    def id(self) -> str:
        """Name in the PDDL problem: KIND_bar_(99 - number), so ``Mug_bar_98`` for ``mug 1``.

        A basin is named after what it is part of: ``Sink_bar_98_bar_SinkBasin`` for ``sinkbasin 1``.
        """
        # alfworld numbers the instances of a class from the last id to the first.
        stem = _BASINS.get(self.kind, self.kind)
        return f"{stem}_bar_{99 - self.number}" + (f"_bar_{self.kind}" if self.kind in _BASINS else "")


@dataclass(frozen=True)
class Content:
    """The contents drawn for a room, and the goal.

    ``places``: the receptacle in which each object is at the start. ``target``: class of the objects to
    deliver. ``destination``: class of the receptacle that they go to, None for a goal with a lamp.
    """

    receptacles: tuple[Thing, ...]
    places: Mapping[Thing, Thing]  # object -> receptacle
    target: str
    destination: str | None


class Rejected(Exception):
    """A draw that is not a valid task; the message is the reason under which it is counted."""


@lru_cache(maxsize=1)
def tables() -> tuple[Any, Mapping[str, Any]]:
    """alfworld's module of constants, and its library of goals by name; imported on first use."""
    from alfworld.gen import constants, goal_library

    return constants, goal_library.gdict


def holds(receptacle: str, kind: str) -> bool:
    """Whether receptacles of class ``receptacle`` may hold objects of class ``kind``."""
    if kind == LAMP:
        return receptacle in _LAMP_STANDS
    return kind in tables()[0].VAL_RECEPTACLE_OBJECTS[receptacle]


def openable(receptacle: str) -> bool:
    """Whether receptacles of class ``receptacle`` can be opened and closed."""
    return receptacle in tables()[0].OPENABLE_CLASS_SET


def able(kind: str, ability: str) -> bool:
    """True if objects of class ``kind`` have an ``ability`` of alfworld, such as ``Cleanable``."""
    return kind in tables()[0].VAL_ACTION_OBJECTS[ability]


def draw(house: House, rng: np.random.Generator) -> Content:
    """Draw the contents of ``house``. Raises Rejected, with the reason, if the draw is not a valid task."""
    # The order of the draws is part of every task's definition.
    rooms = sorted(tables()[0].GOALS_VALID[house.family])
    room = str(rng.choice(rooms))
    receptacles = _draw_receptacles(house, room, rng)
    groups = [group.split() for group in _OBJECTS[room].split("|")]
    every_kind = [kind for group in groups for kind in group]
    destination, target = _draw_goal(house, {r.kind for r in receptacles}, every_kind, rng)
    kinds = _draw_objects(house, target, groups, rng)
    if house.family == LOOK:
        kinds.append(LAMP)
    objects = _numbered(kinds, rng)

    # A place for each object. A goal that is only about the place must not hold at the start; other goals
    # require a state too.
    places: dict[Thing, Thing] = {}
    for thing in objects:
        barred = destination if thing.kind == target and house.family in (SIMPLE, TWO) else None
        fitting = [r for r in receptacles if holds(r.kind, thing.kind) and r.kind != barred]
        if not fitting:
            raise Rejected("no place for an object")
        weights = np.array([_OPENABLE_WEIGHT if openable(r.kind) else 1.0 for r in fitting])
        places[thing] = fitting[int(rng.choice(len(fitting), p=weights / weights.sum()))]
    return Content(receptacles, places, target, destination)


def _draw_receptacles(house: House, room: str, rng: np.random.Generator) -> tuple[Thing, ...]:
    """The receptacles that the goal needs, and others of the room."""
    entries = [entry.split() for entry in _ROOMS[room].split(",")]
    pool = [kind for kind, count in entries for _ in range(int(count))]
    needed = [DEVICES[house.family]] if house.family in DEVICES else []
    if house.family == LOOK:
        needed = [str(rng.choice(sorted(_LAMP_STANDS & set(pool))))]
    for kind in needed:
        pool.remove(kind)
    missing = house.receptacles - len(needed)
    if missing > len(pool):
        raise Rejected("room too small")
    return _numbered(needed + [pool[i] for i in rng.permutation(len(pool))[:missing]], rng)


def _draw_goal(
    house: House, receptacles: set[str], kinds: Sequence[str], rng: np.random.Generator
) -> tuple[str | None, str]:
    """(class of the destination, class of the target object).

    The destination is drawn first: drawing a pair would favour receptacles that may hold many classes.
    """
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


def _draw_objects(
    house: House,
    target: str,
    groups: Sequence[Sequence[str]],
    rng: np.random.Generator,
) -> list[str]:
    """Object classes: the required targets, then a distractor of the same group, then others of the room."""
    drawn = [target] * (2 if house.family == TWO else 1)
    group_of_target = next(group for group in groups if target in group)
    kin = [kind for kind in group_of_target if kind != target]
    if rng.random() < _SECOND_TARGET or not kin:
        drawn.append(target)
    elif len(drawn) < house.objects:
        drawn.append(choice(kin, rng))
    everything = [kind for group in groups for kind in group if kind != target] * _MOST_OF_A_KIND
    for kind in drawn:
        if kind != target:
            everything.remove(kind)
    missing = house.objects - len(drawn)
    if not 0 <= missing <= len(everything):
        raise Rejected("number of objects")
    return drawn + [everything[i] for i in rng.permutation(len(everything))[:missing]]


def _numbered(kinds: Iterable[str], rng: np.random.Generator) -> tuple[Thing, ...]:
    """Instances in drawn order with shuffled numbers, so that number 1 does not mean "drawn first"."""
    listed = list(kinds)
    counts = sorted(Counter(listed).items())
    numbers = {kind: [int(n) + 1 for n in rng.permutation(count)] for kind, count in counts}
    return tuple(Thing(kind, numbers[kind].pop()) for kind in listed)


def choice(options: Sequence[str], rng: np.random.Generator) -> str:
    """Draw one of ``options`` uniformly. Raises Rejected if there are none."""
    if not options:
        raise Rejected("no target and destination")
    return options[int(rng.integers(len(options)))]
