"""Solutions of the nano task set's problems, made offline and stored; each reaches score 100.

First, short plans derived from the texts are tried (``proposals``). If none succeeds, the simulator's gold
path is shortened: it walks through open doors and has odd names ("egg dove egg in inventory"); here a walk
is one ``teleport`` and objects have the names that the texts show.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import permutations, zip_longest
from pathlib import Path

from r3l.envs.scienceworld.engine.simulator import ScienceWorldEngine
from r3l.envs.scienceworld.task_sets.tasks import SOLUTIONS, TASK_SETS, problem_of, solutions, to_solve

from r3l.core.seeds import generator
from r3l.core.task import Task

_IDLE = ("open door", "look around", "wait")
_FOCUSED = re.compile(r"You focus on the (.+)\.")


def solve(engine: ScienceWorldEngine, task: Task, golden: ScienceWorldEngine) -> list[str] | None:
    """The actions of a solution of ``task`` that reaches score 100 on ``engine``, or None if none is found.

    Short plans made from the task's texts are tried first, then the simulator's own solution. ``golden``: a
    second engine, only to compute that; this makes every later reset of it slow.
    """
    for plan in proposals(engine, task):
        if solves(engine, task, plan):
            return plan
    plan = shorten(golden.gold_actions(task))
    for steps in (_renamed(engine, task, plan), plan):
        if solves(engine, task, steps):
            return steps
    return None


def shorten(path: Iterable[str]) -> list[str]:
    """``path`` without waiting and opening doors; one teleport and one look around replace each walk.

    There is no look before a ``move``, since the task says where the box is.
    """
    short: list[str] = []
    for action in path:
        if action.startswith("go to "):
            if short and short[-1].startswith("teleport to "):
                short.pop()
            short.append(f"teleport to {action.removeprefix('go to ')}")
        elif not action.startswith(_IDLE):
            if short and short[-1].startswith("teleport to ") and not action.startswith("move "):
                short.append("look around")
            short.append(action)
    return short


def _renamed(engine: ScienceWorldEngine, task: Task, plan: Sequence[str]) -> list[str]:
    """``plan`` with objects named as in the observations, which are collected by playing it."""
    engine.reset(task)
    focus = ""
    carried = ""
    steps: list[str] = []
    for action in plan:
        shown = _FOCUSED.match(engine.step(action).text)
        if shown:
            focus = shown[1]
            action = f"focus on {focus}"
        elif action.startswith("pick up "):
            carried = action.removeprefix("pick up ") if "flower pot" in action else focus
            action = f"pick up {carried}"
        elif action.startswith("move "):
            action = f"move {carried or focus} to {action.rpartition(' to ')[2]}"
        steps.append(action)
    return steps


def solves(engine: ScienceWorldEngine, task: Task, plan: Sequence[str]) -> bool:
    """Whether ``task`` is solved after the last action of ``plan``, played on ``engine`` from the start."""
    now = engine.reset(task)
    for action in plan:
        now = engine.step(action)
    return now.success


def generate(ids: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield (id, solution) of each problem in ``ids`` that ``solve`` solves, a fifth of a second each.

    The others are left out. Opens two engines, closed after the last problem.
    """
    golden = ScienceWorldEngine()
    player = ScienceWorldEngine()
    for key in ids:
        task = problem_of(key)
        plan = solve(player, task, golden)
        if plan is not None:
            yield key, plan
    golden.close()
    player.close()


def store(known: Mapping[str, list[str]], path: Path = SOLUTIONS) -> None:
    """Write the solutions ``known`` (by problem id) to ``path``, sorted by id, one per line.

    Replaces the file; ``solutions()`` reads it again.
    """
    lines = [f"{json.dumps(key)}: {json.dumps(known[key])}" for key in sorted(known)]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    solutions.cache_clear()


def main() -> None:
    """Solve the problems of the nano task set that have no stored solution yet, and store each (minutes).

    Run as ``python -m r3l.envs.scienceworld.task_sets.gold_solutions``.
    """
    defined = TASK_SETS.definition("nano")
    types = [t for group in defined.groups.values() for t in group.tasks]
    lists = [to_solve(defined, t, source) for source in defined.solve for t in types]
    ids = [key for row in zip_longest(*lists) for key in row if key is not None]
    known = dict(solutions()) if SOLUTIONS.exists() else {}
    for key, plan in generate(key for key in ids if key not in known):
        known[key] = plan
        store(known)  # an interrupted run resumes where it stopped


_FIND = re.compile(r"find a\(n\) (.+)\. First, focus on the thing\. Then, move it to the (.+) in the (.+)\.")
_PLACE = re.compile(r"This (?:room|outside location) is called the ([^.]+)\.")
_ANIMAL = re.compile(r"^\tan? (baby [\w ]+|[\w ]+ egg)$", re.MULTILINE)
_POTTED = re.compile(
    r"^\ta (flower pot \d+) \(containing an? ([\w ]+?)(?: in the [\w ]+)?, soil",
    re.MULTILINE,
)
_THING = re.compile(r"^\tan? ([a-z ]+?)(?=$|\.| \(|, which)", re.MULTILINE)
_HOMES = {"plant": "greenhouse"}  # place of the wanted object; animals and other living things are outside


def proposals(engine: ScienceWorldEngine, task: Task) -> list[list[str]]:
    """Short plans for ``task`` from the texts that ``engine`` shows, in a random order seeded by its id.

    Resets and plays ``engine``. Few of them are solutions. [] for task types other than find-* and
    lifespan-*.
    """
    task_type = str(task.payload["task"])
    first = engine.reset(task).text
    search = _FIND.search(first)
    if search is None and not task_type.startswith("lifespan"):
        return []

    # Go to the place of the wanted object.
    kind, box, home = search.groups() if search else ("animal", "", "")
    place = home if kind == "non-living thing" else _HOMES.get(kind, "outside")
    way: list[str] = []
    seen = first
    here = _PLACE.search(first)
    if here is None or here[1] != place:
        way = [f"teleport to {place}", "look around"]
        for action in way:
            seen = engine.step(action).text

    # One plan for each object (or pair) seen there: focus on it, and move it to the box.
    if search is None:
        count = 2 if "then" in task_type else 1
        orders = permutations(_ANIMAL.findall(seen), count)
        ends = [[f"focus on {name}" for name in names] for names in orders]
    elif kind == "non-living thing":
        names = [name for name in _THING.findall(seen) if name != box]
        ends = [[f"focus on {name}", f"move {name} to {box}"] for name in names]
    else:
        pairs = _POTTED.findall(seen) if kind == "plant" else [(name, name) for name in _ANIMAL.findall(seen)]
        walk = [] if home == place else [f"teleport to {home}"]
        ends = [[f"focus on {n}", f"pick up {held}", *walk, f"move {held} to {box}"] for held, n in pairs]
    generator("proposals", task.id).shuffle(ends)
    return [[*way, *end] for end in ends]


if __name__ == "__main__":
    main()
