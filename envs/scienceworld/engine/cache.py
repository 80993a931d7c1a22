"""Observations that are not computed twice: the simulator is deterministic (``r3l.envs.scienceworld.engine.jvm``).

Starting a problem costs 70 milliseconds of Java and a step five, and a simulator takes some 20 MB, while the attempts
of a group and a retry up to its pivot repeat each other. Observations are cached by (task, actions so far); a simulator
is moved, by replay, only when something new is done, and every replayed observation is compared with the cached one.
Any number of environments share a few simulators: what tells these apart is only where they stand.

On disk they serve the next run: methods and seeds share a task set, and policies begin alike. The file's name is a hash
of the simulator's jar, the engine's settings and the table's columns, so a changed simulator starts an empty one.
SQLite lets any number of processes read and add. Every row carries a digest: a damaged or altered one is never taken
for what the simulator said. A file whose structure is broken is set aside, and a new one is begun.

Own code and not ``diskcache`` (5.6.3), measured in one run on 1,227 real answers (20 tasks, episodes of nine added as
they end; median of five, processor time an answer): with an entry an answer, diskcache writes in 96 microseconds and
reads in 40, this in 51 and 18. With an entry a task it reads in 10 but rewrites the whole task after each episode (59
here, and more with every episode). It has no digests, and stops at a broken file.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock
from r3l.envs.scienceworld import ScienceWorldOptions

from r3l.core.environment import Environment, Observation
from r3l.core.errors import EngineError, ReplayMismatch
from r3l.core.task import Task
from r3l.files.paths import cache_folder

LIMIT = 50_000  # observations cached in a process, about 50 MB; the least recently started tasks go first
SIMULATORS = 32  # of a process: 0.8 GB (measured); with more episodes at once some are replayed
T = TypeVar("T")
Actions = tuple[str, ...]
BROKEN = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
BESIDE = ("", "-wal", "-shm")  # SQLite's files of one database
SCHEMA = (
    "CREATE TABLE IF NOT EXISTS observations (task TEXT, actions TEXT, observation TEXT, digest TEXT,"
    " PRIMARY KEY (task, actions)) WITHOUT ROWID"
)
WAIT = 60  # seconds for another process's transaction; they take milliseconds

log = logging.getLogger(__name__)


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
        return self._actions

    def restore(self, snapshot: Any) -> Observation:
        """Back to ``snapshot``; a simulator follows when something new is done."""
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


class DiskCache:
    """Observations by (task, actions so far) in the SQLite file ``path``. Raises EngineError where it is broken."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._whole(self._open)

    def _open(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.touch()
        self._inode = self._path.stat().st_ino
        self._file = sqlite3.connect(self._path, timeout=WAIT, isolation_level=None)
        self._file.execute("PRAGMA journal_mode=WAL")
        self._file.execute("PRAGMA synchronous=NORMAL")  # a crash of the machine may lose the last ones
        self._file.execute(SCHEMA)
        self._file.text_factory = lambda text: text.decode(errors="replace")  # damaged bytes fail their digest

    def load(self, task: str) -> dict[Actions, Observation]:
        """All that is known of ``task``. A row that its digest does not prove is deleted, so it is played again."""
        return self._whole(lambda: self._load(task))

    def _load(self, task: str) -> dict[Actions, Observation]:
        rows = self._file.execute(
            "SELECT actions, observation, digest FROM observations WHERE task = ?", (task,)
        ).fetchall()
        damaged = [(task, actions) for actions, text, digest in rows if digest != _digest(task, actions, text)]
        if damaged:
            log.warning("%s: %d damaged rows of %s are played again", self._path, len(damaged), task[:60])
            self._file.executemany("DELETE FROM observations WHERE task = ? AND actions = ?", damaged)
        proved = {actions: text for actions, text, _ in rows if (task, actions) not in damaged}
        return {tuple(json.loads(actions)): _observation(text) for actions, text in proved.items()}

    def add(self, task: str, new: Mapping[Actions, Observation]) -> None:
        """Add ``new``, whole or not at all; what another process has added meanwhile stays."""
        texts = [(json.dumps(actions), json.dumps(astuple(now))) for actions, now in new.items()]
        rows = [(task, actions, text, _digest(task, actions, text)) for actions, text in texts]

        def written() -> None:
            self._file.execute("BEGIN IMMEDIATE")
            self._file.executemany("INSERT OR IGNORE INTO observations VALUES (?, ?, ?, ?)", rows)
            self._file.execute("COMMIT")

        self._whole(written)

    def _whole(self, work: Callable[[], T]) -> T:
        """``work`` on the file, and again on a new one where SQLite finds its structure broken."""
        with self._usable():
            try:
                return work()
            except sqlite3.DatabaseError as error:
                if error.sqlite_errorcode & 0xFF not in BROKEN:  # the low byte says what kind of error it is
                    raise
                self._set_aside(error)
                return work()

    def _set_aside(self, error: sqlite3.DatabaseError) -> None:
        """Rename the file, unless another process has done so, and open the one in its place."""
        self._file.close()
        with FileLock(f"{self._path}.lock"):
            if self._path.exists() and self._path.stat().st_ino == self._inode:
                log.warning(
                    "%s is broken (%s); kept as *.damaged, and its episodes are played again", self._path, error
                )
                for ending in BESIDE:
                    if os.path.exists(f"{self._path}{ending}"):
                        os.replace(f"{self._path}{ending}", f"{self._path}.damaged{ending}")
            self._open()

    @contextmanager
    def _usable(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError, ValueError) as error:
            raise EngineError(
                f"{self._path} cannot be used ({error}); delete it, or set R3L_CACHE to a writable folder"
            ) from error


def _digest(*parts: str) -> str:
    """Of a row: what it is about belongs to it."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _observation(text: str) -> Observation:
    seen, admissible, *rest = json.loads(text)
    return Observation(seen, tuple(admissible), *rest)


@cache
def open_disk_cache(options: ScienceWorldOptions) -> DiskCache:
    """The cache of the installed simulator under ``options``; one a process."""
    from importlib.resources import files

    jar = Path(str(files("scienceworld"))) / "scienceworld.jar"
    digest = hashlib.sha256(
        jar.read_bytes() + options.model_dump_json(include={"reward", "step_limit"}).encode() + SCHEMA.encode()
    )
    return DiskCache(cache_folder("scienceworld") / f"{digest.hexdigest()[:16]}.sqlite")
