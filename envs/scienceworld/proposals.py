"""Short ways to solve the nano task set's task types, read off the texts; which of them are right, the simulator says.

Much cheaper than its gold paths, and more varied: those always take the same thing. ``r3l.envs.scienceworld.gold``
keeps the first proposal that it has played to score 100.
"""

from __future__ import annotations

import re
from itertools import permutations

from r3l.envs.scienceworld.engine import ScienceWorldEngine

from r3l.core.seeds import generator
from r3l.core.task import Task

_FIND = re.compile(r"find a\(n\) (.+)\. First, focus on the thing\. Then, move it to the (.+) in the (.+)\.")
_PLACE = re.compile(r"This (?:room|outside location) is called the ([^.]+)\.")
_ANIMAL = re.compile(r"^\tan? (baby [\w ]+|[\w ]+ egg)$", re.MULTILINE)
_POTTED = re.compile(r"^\ta (flower pot \d+) \(containing an? ([\w ]+?)(?: in the [\w ]+)?, soil", re.MULTILINE)
_THING = re.compile(r"^\tan? ([a-z ]+?)(?=$|\.| \(|, which)", re.MULTILINE)
_HOMES = {"plant": "greenhouse"}  # of what is to be found; animals and other living things are outside


def proposals(engine: ScienceWorldEngine, task: Task) -> list[list[str]]:
    """Ways worth trying, in an order drawn by address; none for task types other than find-* and lifespan-*."""
    task_type = str(task.payload["task"])
    first = engine.reset(task).text
    search = _FIND.search(first)
    if search is None and not task_type.startswith("lifespan"):
        return []
    kind, box, home = search.groups() if search else ("animal", "", "")
    place = home if kind == "non-living thing" else _HOMES.get(kind, "outside")
    way, seen = _go(engine, first, place)
    if search is None:
        count = 2 if "then" in task_type else 1
        ends = [[f"focus on {name}" for name in names] for names in permutations(_ANIMAL.findall(seen), count)]
    elif kind == "non-living thing":
        names = [name for name in _THING.findall(seen) if name != box]
        ends = [[f"focus on {name}", f"move {name} to {box}"] for name in names]
    else:
        pairs = _POTTED.findall(seen) if kind == "plant" else [(name, name) for name in _ANIMAL.findall(seen)]
        walk = [] if home == place else [f"teleport to {home}"]
        ends = [[f"focus on {n}", f"pick up {held}", *walk, f"move {held} to {box}"] for held, n in pairs]
    generator("proposals", task.id).shuffle(ends)
    return [[*way, *end] for end in ends]


def _go(engine: ScienceWorldEngine, seen: str, place: str) -> tuple[list[str], str]:
    """How to come from what is ``seen`` to ``place``, and what is seen there."""
    here = _PLACE.search(seen)
    if here and here[1] == place:
        return [], seen
    way = [f"teleport to {place}", "look around"]
    for action in way:
        seen = engine.step(action).text
    return way, seen
