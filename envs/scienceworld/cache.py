"""A cache of observations: the simulator is deterministic (``r3l.envs.scienceworld.jvm``); nothing is computed twice.

Starting a problem costs 70 milliseconds of Java and a step five, and a simulator takes some 20 MB, while the attempts
of a group and a retry up to its pivot repeat each other. Observations are cached by (task, actions so far); a simulator
is moved, by replay, only when something new is done, and every replayed observation is compared with the cached one.
Any number of environments share a few simulators: what tells these apart is only where they stand.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from r3l.envs.scienceworld.disk_cache import Actions, DiskCache

from r3l.core.environment import Environment, Observation
from r3l.core.errors import EngineError, ReplayMismatch
from r3l.core.task import Task

LIMIT = 50_000  # observations cached in a process, about 50 MB; the least recently started tasks go first
SIMULATORS = 32  # of a process: 0.8 GB (measured); with more episodes at once some are replayed


@dataclass
class Slot:
    """A simulator and where it stands. ``at`` None: nowhere known. ``idle``: no episode goes on from there."""

    engine: Environment
    key: str = ""
    at: Actions | None = None
    idle: bool = True

    def leads_to(self, key: str, actions: Actions) -> bool:
        """Whether it comes to ``actions`` without starting over."""
        return self.key == key and self.at is not None and self.at == actions[: len(self.at)]


class ObservationCache:
    """Observations by task and actions, and the simulators that make new ones; shared by a process.

    ``disk``: where other processes' observations come from and new ones go; None for none.
    """

    def __init__(
        self,
        create: Callable[[], Environment],
        limit: int = LIMIT,
        simulators: int = SIMULATORS,
        disk: DiskCache | None = None,
    ) -> None:
        self._create, self._limit, self._simulators, self._disk = create, limit, simulators, disk
        self._tasks: OrderedDict[str, dict[Actions, Observation]] = OrderedDict()
        self._slots: list[Slot] = []  # the one used last stands last

    def of(self, key: str) -> dict[Actions, Observation]:
        """What is known of a task; marks it as recently used. Forgets other tasks if there is too much."""
        if key not in self._tasks:
            self._tasks[key] = self._disk.load(key) if self._disk else {}
        known = self._tasks[key]
        self._tasks.move_to_end(key)
        size = sum(map(len, self._tasks.values()))
        while size > self._limit and len(self._tasks) > 1:
            size -= len(self._tasks.popitem(last=False)[1])
        return known

    def slot(self, key: str, actions: Actions) -> Slot:
        """The simulator that is best moved to ``actions``: the one farthest on the way, a new one, an idle one.

        Where all are in use it is the one used last: episodes take turns, so that one is needed again last.
        """
        near = [slot for slot in self._slots if slot.leads_to(key, actions)]
        if near:
            best = max(near, key=lambda slot: len(slot.at or ()))
        elif len(self._slots) < self._simulators:
            best = Slot(self._create())
            self._slots.append(best)
        else:
            best = next((slot for slot in self._slots if slot.idle), self._slots[-1])
        self._slots.remove(best)
        self._slots.append(best)
        return best

    def end(self, key: str, actions: Actions, new: dict[Actions, Observation]) -> None:
        """An episode ended there, after ``new`` observations."""
        if new and self._disk:
            self._disk.add(key, new)
        for slot in self._slots:
            if (slot.key, slot.at) == (key, actions):
                slot.idle = True


class CachedEngine:
    """An ``Environment`` that asks a simulator only for what the cache does not know. Snapshots cost nothing."""

    def __init__(self, cache: ObservationCache) -> None:
        self._cache = cache
        self._task: Task | None = None
        self._key = ""
        self._known: dict[Actions, Observation] = {}
        self._new: dict[Actions, Observation] = {}  # by this episode
        self._actions: Actions = ()

    def reset(self, task: Task) -> Observation:
        """Start ``task``. Raises DataError for a bad one."""
        self._end()
        self._key = json.dumps([task.id, dict(task.payload)], sort_keys=True)
        self._known = self._cache.of(self._key)
        self._task, self._actions = task, ()
        return self._observe()

    def step(self, action: str) -> Observation:
        """One action. Raises ReplayMismatch where the simulator does not repeat itself."""
        if self._task is None:
            raise EngineError("step before a successful reset")
        self._actions = (*self._actions, action)
        return self._observe()

    def snapshot(self) -> Actions:
        """The actions so far."""
        return self._actions

    def restore(self, snapshot: Any) -> Observation:
        """Back to ``snapshot``; a simulator follows when something new is done."""
        self._end()
        self._actions = tuple(snapshot)
        return self._observe()

    def close(self) -> None:
        """End the episode; its simulator is free for others."""
        self._end()
        self._task = None

    def _end(self) -> None:
        self._cache.end(self._key, self._actions, self._new)
        self._new = {}

    def _observe(self) -> Observation:
        if self._actions not in self._known:
            self._known[self._actions] = self._new[self._actions] = self._compute()
        return self._known[self._actions]

    def _compute(self) -> Observation:
        """Move a simulator to the present actions, from where it stands if that is on the way."""
        assert self._task is not None
        slot = self._cache.slot(self._key, self._actions)
        at = slot.at if slot.leads_to(self._key, self._actions) else None
        slot.key, slot.at = self._key, None  # unknown, should anything fail
        if at is None:
            now, at = self._checked((), slot.engine.reset(self._task)), ()
        for length in range(len(at) + 1, len(self._actions) + 1):
            now = self._checked(self._actions[:length], slot.engine.step(self._actions[length - 1]))
        slot.at, slot.idle = self._actions, now.done
        return now

    def _checked(self, actions: Actions, now: Observation) -> Observation:
        known = self._known.get(actions, now)
        if known != now:
            task = self._task.id if self._task else "?"
            raise ReplayMismatch(
                f"task {task} after {list(actions)}: the simulator says {now.text!r} where it said {known.text!r}; "
                "it is not deterministic"
            )
        return now
