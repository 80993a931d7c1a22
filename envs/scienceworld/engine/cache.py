"""Cache of the simulator's observations, in memory and on disk.

The simulator is deterministic (``r3l.envs.scienceworld.engine.jvm``), but slow and large: a start takes 70
milliseconds, a step five, a simulator 20 MB. The attempts of a group and the steps of a retry up to its
pivot repeat each other. So observations are cached by (task, actions so far). A simulator is moved, by
replay, only for a new observation, and every replayed observation is compared with the cached one. Any
number of environments share a few simulators.

The file on disk serves later runs, since methods and seeds share a task set and policies begin alike. Its
name is a hash of the simulator's jar, the engine's settings, the table's columns and the fields of an
observation, so a changed simulator and another version of r3l get a new file. SQLite lets any number of
processes read and add. Each row has a digest, so a damaged or altered row is never used. A file with a
broken structure is renamed, and a new one is started.

The library ``diskcache`` (5.6.3) was measured on 1,227 real observations (20 tasks, episodes of nine added
as they end; median of five, processor time per observation). With an entry per observation it writes in 96
microseconds and reads in 40, this code in 51 and 18. With an entry per task it reads in 10, but rewrites
the task after each episode (59 here, and more with every episode). It has no digests, and a broken file is
an error.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock
from r3l.envs.scienceworld import ScienceWorldOptions

from r3l.core.environment import Environment, Observation
from r3l.core.errors import EngineError, ReplayMismatch
from r3l.core.task import Task
from r3l.files.paths import cache_folder

LIMIT = 50_000  # observations in memory per process, about 50 MB; least recently started tasks are removed
SIMULATORS = 32  # per process: 0.8 GB (measured); with more simultaneous episodes some are replayed
T = TypeVar("T")
Actions = tuple[str, ...]
BROKEN = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
FILE_ENDINGS = ("", "-wal", "-shm")  # SQLite's files of one database
SCHEMA = (
    "CREATE TABLE IF NOT EXISTS observations (task TEXT, actions TEXT, observation TEXT, digest TEXT,"
    " PRIMARY KEY (task, actions)) WITHOUT ROWID"
)
WAIT = 60  # seconds to wait for another process's transaction, which takes milliseconds

log = logging.getLogger(__name__)


@dataclass
class Slot:
    """A simulator and its state: it has played the actions ``at`` in the task ``key``.

    ``at`` None: the state is unknown. ``idle``: no running episode will continue from this state.
    """

    engine: Environment
    key: str = ""
    at: Actions | None = None
    idle: bool = True

    def leads_to(self, key: str, actions: Actions) -> bool:
        """Whether the simulator is in the task ``key`` and has played a prefix of ``actions`` (or all)."""
        return self.key == key and self.at is not None and self.at == actions[: len(self.at)]


class ObservationCache:
    """Observations by task and actions, and the simulators that compute new ones; one per process.

    ``create`` makes a simulator, of which there are at most ``simulators``. ``limit``: observations in
    memory. ``disk``: file with observations of all processes, to which new ones are added; None: memory only.
    """

    def __init__(
        self,
        create: Callable[[], Environment],
        limit: int = LIMIT,
        simulators: int = SIMULATORS,
        disk: DiskCache | None = None,
    ) -> None:
        self._create = create
        self._limit = limit
        self._simulators = simulators
        self._disk = disk
        self._tasks: OrderedDict[str, dict[Actions, Observation]] = OrderedDict()  # most recently used last
        self._slots: list[Slot] = []  # most recently used last

    def observations(self, key: str) -> dict[Actions, Observation]:
        """The cached observations of the task ``key``, each by the actions that led to it.

        Read from disk when the task is first used. The dict is the cache itself: what is added to it stays.
        Drops the least recently used tasks from memory if there are more observations than the limit.
        """
        if key not in self._tasks:
            self._tasks[key] = self._disk.load(key) if self._disk else {}
        known = self._tasks[key]
        self._tasks.move_to_end(key)
        size = sum(map(len, self._tasks.values()))
        while size > self._limit and len(self._tasks) > 1:
            size -= len(self._tasks.popitem(last=False)[1])
        return known

    def slot(self, key: str, actions: Actions) -> Slot:
        """A simulator with which to reach the state after ``actions`` of the task ``key``.

        It is the one that has played most of these actions, else a new one (up to the limit), else an idle
        one, else the one used last.
        """
        near = [slot for slot in self._slots if slot.leads_to(key, actions)]
        if near:
            best = max(near, key=lambda slot: len(slot.at or ()))
        elif len(self._slots) < self._simulators:
            best = Slot(self._create())
            self._slots.append(best)
        else:
            idle = [slot for slot in self._slots if slot.idle]
            # Episodes take turns, so the simulator used last will be needed again last.
            best = idle[0] if idle else self._slots[-1]
        self._slots.remove(best)
        self._slots.append(best)
        return best

    def end(self, key: str, actions: Actions, new: dict[Actions, Observation]) -> None:
        """End an episode: store on disk what it added, and mark its simulator as idle.

        ``key``: the task. ``actions``: all actions of the episode. ``new``: the observations that it had to
        compute, each by the actions that led to it.
        """
        if new and self._disk:
            self._disk.add(key, new)
        for slot in self._slots:
            if (slot.key, slot.at) == (key, actions):
                slot.idle = True


class CachedEngine:
    """An ``Environment`` that uses a simulator only for observations that are not cached.

    A snapshot is the list of actions so far, which costs nothing.
    """

    def __init__(self, cache: ObservationCache) -> None:
        self._cache = cache
        self._task: Task | None = None
        self._key = ""
        self._known: dict[Actions, Observation] = {}
        self._new: dict[Actions, Observation] = {}  # computed in this episode
        self._actions: Actions = ()

    def reset(self, task: Task) -> Observation:
        """Start ``task``; its first observation is cached or computed. Ends the episode before.

        Raises DataError for an invalid payload, SimulatorLost if the simulator fails.
        """
        self._end()
        self._key = json.dumps([task.id, dict(task.payload)], sort_keys=True)
        self._known = self._cache.observations(self._key)
        self._task = task
        self._actions = ()
        return self._observe()

    def step(self, action: str) -> Observation:
        """Apply one action and return the next observation.

        Raises ReplayMismatch if replaying earlier actions gives other observations than the cached ones, and
        EngineError before a successful reset.
        """
        if self._task is None:
            raise EngineError("step before a successful reset")
        self._actions = (*self._actions, action)
        return self._observe()

    def snapshot(self) -> Actions:
        return self._actions

    def restore(self, snapshot: Any) -> Observation:
        """Return to ``snapshot``, which must be a state of the task started last; returns its observation.

        A simulator is moved to the state only when a new observation is needed.
        """
        self._end()
        self._actions = tuple(snapshot)
        return self._observe()

    def close(self) -> None:
        self._end()
        self._task = None

    def _end(self) -> None:
        self._cache.end(self._key, self._actions, self._new)
        self._new = {}

    def _observe(self) -> Observation:
        """The observation after the current actions, cached or computed."""
        if self._actions in self._known:
            return self._known[self._actions]

        # Move a simulator to the current actions, from its state if that is on the way. If a call fails, its
        # state stays unknown, so that the next user restarts it.
        assert self._task is not None
        slot = self._cache.slot(self._key, self._actions)
        at = slot.at if slot.leads_to(self._key, self._actions) else None
        slot.key = self._key
        slot.at = None
        if at is None:
            now = self._checked((), slot.engine.reset(self._task))
            at = ()
        for length in range(len(at) + 1, len(self._actions) + 1):
            now = self._checked(self._actions[:length], slot.engine.step(self._actions[length - 1]))
        slot.at = self._actions
        slot.idle = now.done

        self._known[self._actions] = now
        self._new[self._actions] = now
        return now

    def _checked(self, actions: Actions, now: Observation) -> Observation:
        """Return ``now``. Raises ReplayMismatch if the cache has another observation after ``actions``."""
        known = self._known.get(actions, now)
        if known != now:
            task = self._task.id if self._task else "?"
            raise ReplayMismatch(
                f"task {task} after {list(actions)}: the simulator says {now.text!r} where it said "
                f"{known.text!r}; it is not deterministic"
            )
        return now


class DiskCache:
    """Observations by (task, actions so far) in the SQLite file ``path``, which is created if it is missing.

    A broken file is renamed and a new one started. Every call raises EngineError if the file cannot be used.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._repairing(self._open)

    def _open(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.touch()
        self._inode = self._path.stat().st_ino
        self._file = sqlite3.connect(self._path, timeout=WAIT, isolation_level=None)
        self._file.execute("PRAGMA journal_mode=WAL")
        self._file.execute("PRAGMA synchronous=NORMAL")  # a crash of the machine may lose the last rows
        self._file.execute(SCHEMA)
        # Undecodable bytes must not raise: the row's digest shows that it is damaged.
        self._file.text_factory = lambda text: text.decode(errors="replace")

    def load(self, task: str) -> dict[Actions, Observation]:
        """The stored observations of ``task``, each by the actions that led to it; {} for a new task.

        A damaged row is deleted with a warning, so it will be computed again.
        """
        return self._repairing(lambda: self._load(task))

    def _load(self, task: str) -> dict[Actions, Observation]:
        statement = "SELECT actions, observation, digest FROM observations WHERE task = ?"
        rows = self._file.execute(statement, (task,)).fetchall()
        damaged = [(task, actions) for actions, text, proof in rows if proof != _digest(task, actions, text)]
        if damaged:
            log.warning("%s: %d damaged rows of %s are played again", self._path, len(damaged), task[:60])
            self._file.executemany("DELETE FROM observations WHERE task = ? AND actions = ?", damaged)

        observations: dict[Actions, Observation] = {}
        for actions, text, _ in rows:
            if (task, actions) not in damaged:
                seen, admissible, *rest = json.loads(text)
                observations[tuple(json.loads(actions))] = Observation(seen, tuple(admissible), *rest)
        return observations

    def add(self, task: str, new: Mapping[Actions, Observation]) -> None:
        """Add ``new`` observations of ``task`` in one transaction.

        Rows that another process has added meanwhile stay.
        """
        texts = [(json.dumps(actions), json.dumps(astuple(now))) for actions, now in new.items()]
        rows = [(task, actions, text, _digest(task, actions, text)) for actions, text in texts]

        def write() -> None:
            self._file.execute("BEGIN IMMEDIATE")
            self._file.executemany("INSERT OR IGNORE INTO observations VALUES (?, ?, ?, ?)", rows)
            self._file.execute("COMMIT")

        self._repairing(write)

    def _repairing(self, work: Callable[[], T]) -> T:
        """Call ``work``; if SQLite finds the file's structure broken, call it again on a new file.

        Raises EngineError for every other error.
        """
        try:
            try:
                return work()
            except sqlite3.DatabaseError as error:
                if error.sqlite_errorcode & 0xFF not in BROKEN:  # the low byte is the kind of error
                    raise
                self._file.close()
                with FileLock(f"{self._path}.lock"):
                    # Another process may have renamed the broken file already; then its new one is good.
                    if self._path.exists() and self._path.stat().st_ino == self._inode:
                        log.warning(
                            "%s is broken (%s); kept as *.damaged, and its episodes are played again",
                            self._path,
                            error,
                        )
                        for ending in FILE_ENDINGS:
                            if os.path.exists(f"{self._path}{ending}"):
                                os.replace(f"{self._path}{ending}", f"{self._path}.damaged{ending}")
                    self._open()
                return work()
        except (sqlite3.Error, OSError, ValueError) as error:
            raise EngineError(
                f"{self._path} cannot be used ({error}); delete it, or set R3L_CACHE to a writable folder"
            ) from error


def _digest(*parts: str) -> str:
    """Digest of a row, key included, so that an observation cannot be moved to another key."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@cache
def open_disk_cache(options: ScienceWorldOptions) -> DiskCache:
    """The disk cache of the installed simulator under ``options``, opened once per process.

    It is ``scienceworld/HASH.sqlite`` in r3l's cache folder.
    """
    from importlib.resources import files

    jar = Path(str(files("scienceworld"))) / "scienceworld.jar"
    settings = options.model_dump_json(include={"reward", "step_limit"})
    # Rows hold an observation's values in this order: with another list of fields they would be misread.
    columns = SCHEMA + ",".join(field.name for field in fields(Observation))
    digest = hashlib.sha256(jar.read_bytes() + settings.encode() + columns.encode())
    return DiskCache(cache_folder("scienceworld") / f"{digest.hexdigest()[:16]}.sqlite")
