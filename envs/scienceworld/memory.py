"""What the simulator has said once need not be computed again: it is deterministic (``envs.scienceworld.jvm``).

Starting a problem costs a hundred milliseconds of Java and every step ten or more, while the attempts of a group and
a retry up to its pivot repeat each other. Observations are kept by (task, actions so far); the simulator is moved, by
replay, only when something new is done, and every replayed observation is compared with the one that was kept.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import Any

from r3l.core.environment import Environment, Observation
from r3l.core.errors import EngineError, ReplayMismatch
from r3l.core.task import Task

LIMIT = 50_000  # observations kept in a process, about 50 MB; the least recently started tasks go first
Path = tuple[str, ...]


class Memory:
    """Observations by task and actions, shared by the engines of a process (of one kind of options)."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._tasks: OrderedDict[str, dict[Path, Observation]] = OrderedDict()
        self._size = 0

    def of(self, task: Task) -> dict[Path, Observation]:
        """What is known of ``task``; marks it as recently used. Forgets other tasks if there is too much."""
        key = json.dumps([task.id, dict(task.payload)], sort_keys=True)
        known = self._tasks.setdefault(key, {})
        self._tasks.move_to_end(key)
        size = sum(map(len, self._tasks.values()))
        while size > self._limit and len(self._tasks) > 1:
            size -= len(self._tasks.popitem(last=False)[1])
        return known


class RememberingEngine:
    """An ``Environment`` that asks ``engine`` only for what ``memory`` does not know. Its snapshots cost nothing."""

    def __init__(self, engine: Environment, memory: Memory) -> None:
        self._engine, self._memory = engine, memory
        self._task: Task | None = None
        self._known: dict[Path, Observation] = {}
        self._path: Path = ()
        self._engine_at: Path | None = None  # where the engine is in the present task; None: elsewhere

    def reset(self, task: Task) -> Observation:
        """Start ``task``. Raises DataError for a bad one."""
        self._known = self._memory.of(task)
        self._task, self._path, self._engine_at = task, (), None
        return self._look()

    def step(self, action: str) -> Observation:
        """One action. Raises ReplayMismatch where the engine does not repeat what it said."""
        if self._task is None:
            raise EngineError("step before a successful reset")
        self._path = (*self._path, action)
        return self._look()

    def snapshot(self) -> Path:
        """The actions so far."""
        return self._path

    def restore(self, snapshot: Any) -> Observation:
        """Back to ``snapshot``; the engine follows when something new is done."""
        self._path = tuple(snapshot)
        return self._look()

    def close(self) -> None:
        """Release the engine."""
        self._task, self._engine_at = None, None
        self._engine.close()

    def _look(self) -> Observation:
        if self._path not in self._known:
            self._known[self._path] = self._compute()
        return self._known[self._path]

    def _compute(self) -> Observation:
        """Move the engine to the present path, from where it is if that is on the way."""
        assert self._task is not None
        at, self._engine_at = self._engine_at, None  # unknown, should anything fail
        if at is None or at != self._path[: len(at)]:
            now, at = self._checked((), self._engine.reset(self._task)), ()
        for length in range(len(at) + 1, len(self._path) + 1):
            now = self._checked(self._path[:length], self._engine.step(self._path[length - 1]))
        self._engine_at = self._path
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
