"""What the simulator has said once need not be computed again: it is deterministic (``r3l.envs.scienceworld.jvm``).

Starting a problem costs 70 milliseconds of Java and a step five, and a simulator takes some 20 MB, while the attempts
of a group and a retry up to its pivot repeat each other. Observations are kept by (task, actions so far); a simulator
is moved, by replay, only when something new is done, and every replayed observation is compared with the one that was
kept. Any number of environments share a few simulators: what tells these apart is only where they stand.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from r3l.core.environment import Environment, Observation
from r3l.core.errors import EngineError, ReplayMismatch
from r3l.core.task import Task
from r3l.envs.scienceworld.store import Store

LIMIT = 50_000  # observations kept in a process, about 50 MB; the least recently started tasks go first
SIMULATORS = 32  # of a process: 0.8 GB (measured); with more episodes at once some are replayed
Path = tuple[str, ...]


@dataclass
class Seat:
    """A simulator and where it stands. ``path`` None: nowhere known. ``idle``: no episode goes on from there."""

    engine: Environment
    key: str = ""
    path: Path | None = None
    idle: bool = True

    def on_the_way(self, key: str, path: Path) -> bool:
        """It need not start over to come to ``path``."""
        return self.key == key and self.path is not None and self.path == path[: len(self.path)]


class Memory:
    """Observations by task and actions, and the simulators that make new ones; shared by a process.

    ``store``: where other processes' observations come from and new ones go; None for none.
    """

    def __init__(
        self,
        create: Callable[[], Environment],
        limit: int = LIMIT,
        simulators: int = SIMULATORS,
        store: Store | None = None,
    ) -> None:
        self._create, self._limit, self._simulators, self._store = create, limit, simulators, store
        self._tasks: OrderedDict[str, dict[Path, Observation]] = OrderedDict()
        self._seats: list[Seat] = []  # the one used last stands last

    def of(self, key: str) -> dict[Path, Observation]:
        """What is known of a task; marks it as recently used. Forgets other tasks if there is too much."""
        if key not in self._tasks:
            self._tasks[key] = self._store.load(key) if self._store else {}
        known = self._tasks[key]
        self._tasks.move_to_end(key)
        size = sum(map(len, self._tasks.values()))
        while size > self._limit and len(self._tasks) > 1:
            size -= len(self._tasks.popitem(last=False)[1])
        return known

    def seat(self, key: str, path: Path) -> Seat:
        """The simulator that is best moved to ``path``: the one farthest on the way, a new one, an idle one.

        Where all are in use it is the one used last: episodes take turns, so that one is needed again last.
        """
        near = [seat for seat in self._seats if seat.on_the_way(key, path)]
        if near:
            chosen = max(near, key=lambda seat: len(seat.path or ()))
        elif len(self._seats) < self._simulators:
            chosen = Seat(self._create())
            self._seats.append(chosen)
        else:
            chosen = next((seat for seat in self._seats if seat.idle), self._seats[-1])
        self._seats.remove(chosen)
        self._seats.append(chosen)
        return chosen

    def leave(self, key: str, path: Path, new: dict[Path, Observation]) -> None:
        """An episode ended there, after ``new`` observations."""
        if new and self._store:
            self._store.add(key, new)
        for seat in self._seats:
            if (seat.key, seat.path) == (key, path):
                seat.idle = True


class RememberingEngine:
    """An ``Environment`` that asks a simulator only for what ``memory`` does not know. Snapshots cost nothing."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._task: Task | None = None
        self._key = ""
        self._known: dict[Path, Observation] = {}
        self._new: dict[Path, Observation] = {}  # by this episode
        self._path: Path = ()

    def reset(self, task: Task) -> Observation:
        """Start ``task``. Raises DataError for a bad one."""
        self._leave()
        self._key = json.dumps([task.id, dict(task.payload)], sort_keys=True)
        self._known = self._memory.of(self._key)
        self._task, self._path = task, ()
        return self._look()

    def step(self, action: str) -> Observation:
        """One action. Raises ReplayMismatch where the simulator does not repeat what it said."""
        if self._task is None:
            raise EngineError("step before a successful reset")
        self._path = (*self._path, action)
        return self._look()

    def snapshot(self) -> Path:
        """The actions so far."""
        return self._path

    def restore(self, snapshot: Any) -> Observation:
        """Back to ``snapshot``; a simulator follows when something new is done."""
        self._leave()
        self._path = tuple(snapshot)
        return self._look()

    def close(self) -> None:
        """End the episode; its simulator is free for others."""
        self._leave()
        self._task = None

    def _leave(self) -> None:
        self._memory.leave(self._key, self._path, self._new)
        self._new = {}

    def _look(self) -> Observation:
        if self._path not in self._known:
            self._known[self._path] = self._new[self._path] = self._compute()
        return self._known[self._path]

    def _compute(self) -> Observation:
        """Move a simulator to the present path, from where it stands if that is on the way."""
        assert self._task is not None
        seat = self._memory.seat(self._key, self._path)
        at = seat.path if seat.on_the_way(self._key, self._path) else None
        seat.key, seat.path = self._key, None  # unknown, should anything fail
        if at is None:
            now, at = self._checked((), seat.engine.reset(self._task)), ()
        for length in range(len(at) + 1, len(self._path) + 1):
            now = self._checked(self._path[:length], seat.engine.step(self._path[length - 1]))
        seat.path, seat.idle = self._path, now.done
        return now

    def _checked(self, path: Path, now: Observation) -> Observation:
        known = self._known.get(path, now)
        if known != now:
            task = self._task.id if self._task else "?"
            raise ReplayMismatch(
                f"task {task} after {list(path)}: the simulator says {now.text!r} where it said {known.text!r}; "
                "it is not deterministic"
            )
        return now
