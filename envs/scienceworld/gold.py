"""Solutions of the nano panel's problems: the simulator's gold paths, shortened, proved, and stored once.

The gold paths walk through doors that are open and name things by odd words ("egg dove egg in inventory"). Here a
walk is one ``teleport`` and things have the names that the texts show; each shortened path is played to score 100.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from envs.scienceworld.engine import ScienceWorldEngine
from r3l.core.errors import DataError
from r3l.core.task import Task

STORED = Path(__file__).resolve().parent / "panels" / "gold.json"
_IDLE = ("open door", "look around", "wait")
_FOCUSED = re.compile(r"You focus on the (.+)\.")


def solution(task_id: str) -> list[str]:
    """The stored solution of a problem. Raises DataError where there is none."""
    found = _stored().get(task_id)
    if found is None:
        raise DataError(f"{STORED}: no solution of {task_id}; generate it: python -m envs.scienceworld.gold")
    return list(found)


def solved() -> list[str]:
    """The ids of the problems with a stored solution, sorted."""
    return sorted(_stored())


@cache
def _stored() -> dict[str, list[str]]:
    try:
        return dict(json.loads(STORED.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise DataError(f"{STORED} is missing or damaged ({error}). Restore it: git checkout {STORED.name}") from error


def solve(engine: ScienceWorldEngine, task: Task, path: Sequence[str]) -> list[str] | None:
    """The gold ``path`` shortened, in the words of the texts; None where that does not reach score 100."""
    plan = shorten(path)
    renamed = _renamed(engine, task, plan)
    return next((steps for steps in (renamed, plan) if solves(engine, task, steps)), None)


def shorten(path: Iterable[str]) -> list[str]:
    """``path`` without waiting and opening doors; each walk a teleport to where it ends, then one look around.

    Not before a ``move``: the task says where its box is.
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
    """``plan`` with things named as the texts show them; played as it stands to see those names."""
    engine.reset(task)
    focus = carried = ""
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
    """Whether ``plan``, played from the start, solves ``task``."""
    now = engine.reset(task)
    for action in plan:
        now = engine.step(action)
    return now.success


def generate(tasks: Iterable[Task]) -> dict[str, list[str]]:
    """Solutions of ``tasks`` that have a short one, by id. About a second a task, offline."""
    asked, player = ScienceWorldEngine(), ScienceWorldEngine()
    found = {}
    for task in tasks:
        plan = solve(player, task, asked.gold_actions(task))
        if plan is not None:
            found[task.id] = plan
    asked.close()
    player.close()
    return found


def store(solutions: dict[str, list[str]], path: Path = STORED) -> None:
    """Write ``solutions``, one a line, sorted by id."""
    lines = [f"{json.dumps(key)}: {json.dumps(solutions[key])}" for key in sorted(solutions)]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    _stored.cache_clear()


def main() -> None:
    """``python -m envs.scienceworld.gold``: solve every problem of the nano panel's task types (20 minutes)."""
    from envs.scienceworld.panels import definition
    from envs.scienceworld.selection import VARIATIONS, problem

    types = [t for group in definition("nano").groups.values() for t in group.tasks]
    store(generate(problem(t, v, "") for t in types for v in range(VARIATIONS[t])))


if __name__ == "__main__":
    main()
