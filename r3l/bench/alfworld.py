"""Our engine against the packages' own path on the same games in one run: speed, and identity step by step.

Both sides play one action sequence per game: the stored walkthrough, then random admissible actions with some
that are none. Compared at every step: text, admissible list, reward, done, success. Timed: starting a game
(ours from the disk cache; both with their library already open), a step with its admissible commands, and
coming back to the state after PIVOT steps (ours: restore; theirs: reset and replay). Filling the disk cache,
once per problem and machine, is reported apart. Our side is then played once more by itself, for its memory.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from r3l.bench.engines import Played, Script, alone, machine, play, spread, timed
from r3l.core.environment import Observation
from r3l.core.errors import DataError
from r3l.core.task import Task
from r3l.envs.alfworld.engine import AlfworldEngine
from r3l.envs.alfworld.games import ids_sha256, load_packed
from r3l.envs.alfworld.official import OfficialEnvironment
from r3l.envs.alfworld.tasks import tasks as tasks_of
from r3l.envs.alfworld.translate import installed_versions

TARGETS = {"start": 30.0, "step": 50.0, "restore": 100.0}  # how many times faster we mean to be
PIVOT = 20  # the step that is returned to
_AFTER_RESTORE = 10  # steps replayed after the return
_INVALID_EVERY = 8
_INVALID = ("", "fly to the moon", "Look", "take apple 99 from fridge 1", "go to", "go  to bed 1", "<look>")
_REPORTED_DIFFERENCES = 5


@dataclass
class _Times:
    """Seconds per operation, ours and theirs."""

    ours: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in TARGETS})
    official: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in TARGETS})
    first: list[float] = field(default_factory=list)  # ours: filling the cache


def run(task_set: str, *, tasks: int = 0, steps: int = 20, seed: int = 0, packed: Path | None = None) -> dict[str, Any]:
    """``bench`` on so many games (0: all) of ``task_set`` or of the file ``packed``. Called by ``r3l bench env``."""
    return bench(spread(load_packed(packed) if packed else tasks_of(task_set), tasks), steps, seed)


def bench(games: Sequence[Task], steps: int, seed: int, restarts: int = 20) -> dict[str, Any]:
    """Play ``games`` on both paths: walkthrough, then ``steps`` more (seeded by ``seed``).

    ``restarts``: on how many games (spread evenly) the slow replay of the packages is timed. Returns ours in the
    words of ``r3l.bench.engines``, seconds (means and medians), the ratios of means, and how many observations were
    compared and how many differed.
    """
    if not games:
        raise DataError("no ALFWorld games to bench")
    times, differences, scripts = _Times(), [], list[Script]()
    compared = won = returned = 0
    stride = max(1, len(games) // max(1, restarts))
    official = OfficialEnvironment()
    for index, task in enumerate(games):
        replays = official if index % stride == 0 and index // stride < restarts else None
        pairs, same_after = _play(task, official, replays, steps, random.Random(f"{seed}/{task.id}"), times)
        scripts.append((task, [action for action, _, _ in pairs[1:]]))
        compared += len(pairs)
        won += any(theirs.success for _, _, theirs in pairs)
        returned += same_after
        differences += [
            {"task": task.id, "step": step, "action": action, "ours": vars(ours), "official": vars(theirs)}
            for step, (action, ours, theirs) in enumerate(pairs)
            if ours != theirs
        ]
    official.close()
    return {
        **alone(_ours, scripts).headline,
        "games": len(games),
        "task_set_sha256": ids_sha256(task.id for task in games),
        "seed": seed,
        "steps_after_walkthrough": steps,
        "identity": {
            "observations_compared": compared,
            "different": len(differences),
            "first_differences": differences[:_REPORTED_DIFFERENCES],
            "games_won": won,
            "games_identical_after_restore": returned,
        },
        **{name: _compare(times.ours[name], times.official[name], TARGETS[name]) for name in TARGETS},
        "first_translation": _summary(times.first) if times.first else None,
        "restore_at_step": PIVOT,
        "versions": installed_versions(),
        "machine": machine(),
    }


def _ours(scripts: list[Script]) -> Played:
    return play(AlfworldEngine, scripts)


def _play(
    task: Task,
    official: OfficialEnvironment,
    replays: OfficialEnvironment | None,
    steps: int,
    rng: random.Random,
    times: _Times,
) -> tuple[list[tuple[str, Observation, Observation]], bool]:
    """One game on both sides: (action, ours, theirs) per observation, and whether restoring was exact."""
    engine = _prepared(task, times)
    seconds, ours = timed(lambda: engine.reset(task))
    times.ours["start"].append(seconds)
    seconds, theirs = timed(lambda: official.reset(task))
    times.official["start"].append(seconds)
    pairs = [("", ours, theirs)]
    mark: Any = None
    walkthrough = list(task.payload.get("walkthrough", ()))
    for step in range(max(len(walkthrough) + steps, PIVOT)):
        action = walkthrough[step] if step < len(walkthrough) else _choose(ours, step, rng)
        seconds, ours = timed(lambda act=action: engine.step(act))  # type: ignore[misc]
        times.ours["step"].append(seconds)
        seconds, theirs = timed(lambda act=action: official.step(act))  # type: ignore[misc]
        times.official["step"].append(seconds)
        pairs.append((action, ours, theirs))
        if step + 1 == PIVOT:
            mark = engine.snapshot()
    exact = _return(engine, mark, pairs, times)
    if replays is not None:
        actions = [action for action, _, _ in pairs[1 : PIVOT + 1]]
        seconds, theirs = timed(lambda: replays.restart(actions))
        times.official["restore"].append(seconds)
        exact = exact and theirs == pairs[PIVOT][1]
    engine.close()
    return pairs, exact


def _prepared(task: Task, times: _Times) -> AlfworldEngine:
    """An open engine with the task translated but not loaded; the translation is timed if it was needed."""
    engine = AlfworldEngine()
    seconds, fresh = timed(lambda: engine.prepare(task))
    if fresh:
        times.first.append(seconds)
    return engine


def _choose(now: Observation, step: int, rng: random.Random) -> str:
    if step % _INVALID_EVERY == 0:
        return rng.choice(_INVALID)
    return rng.choice(now.admissible)


def _return(
    engine: AlfworldEngine, mark: Any, pairs: list[tuple[str, Observation, Observation]], times: _Times
) -> bool:
    """Restore the mark, then play on as before: True where every observation is the recorded one."""
    seconds, now = timed(lambda: engine.restore(mark))
    times.ours["restore"].append(seconds)
    recorded = pairs[PIVOT : PIVOT + 1 + _AFTER_RESTORE]
    again = [now] + [engine.step(action) for action, _, _ in recorded[1:]]
    return again == [ours for _, ours, _ in recorded]


def _compare(ours: list[float], official: list[float], target: float) -> dict[str, Any]:
    mine, theirs = _summary(ours), _summary(official)
    ratio = theirs["mean_s"] / mine["mean_s"]
    return {"ours": mine, "official": theirs, "ratio": ratio, "target": target, "met": ratio >= target}


def _summary(seconds: list[float]) -> dict[str, float]:
    return {"mean_s": statistics.fmean(seconds), "median_s": statistics.median(seconds), "n": len(seconds)}
