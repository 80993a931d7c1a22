"""Observations on disk, for the next run (``r3l.envs.scienceworld.cache`` has those of a process).

Runs of one environment repeat each other: methods and seeds share a task set, and policies begin alike. The file's
name is a hash of the simulator's jar, the engine's settings and the table's columns, so a changed simulator starts an
empty one. SQLite lets any number of processes read and add. Every row carries a digest: a damaged or altered one is
never taken for what the simulator said. A file whose structure is broken is set aside, and a new one is begun.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple
from functools import cache
from pathlib import Path
from typing import TypeVar

from filelock import FileLock
from r3l.envs.scienceworld.options import ScienceWorldOptions

from r3l.core.environment import Observation
from r3l.core.errors import EngineError
from r3l.files.cache import cache_folder

log = logging.getLogger(__name__)
T = TypeVar("T")
Actions = tuple[str, ...]
BROKEN = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
BESIDE = ("", "-wal", "-shm")  # SQLite's files of one database
SCHEMA = (
    "CREATE TABLE IF NOT EXISTS observations (task TEXT, actions TEXT, observation TEXT, digest TEXT,"
    " PRIMARY KEY (task, actions)) WITHOUT ROWID"
)
WAIT = 60  # seconds for another process's transaction; they take milliseconds


class DiskCache:
    """Observations by (task, actions so far) in the SQLite file ``path``. Raises EngineError where it is unusable."""

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
                log.warning("%s is broken (%s); kept as *.damaged, and its episodes are played anew", self._path, error)
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
    digest = hashlib.sha256(jar.read_bytes() + options.model_dump_json().encode() + SCHEMA.encode())
    return DiskCache(cache_folder("scienceworld") / f"{digest.hexdigest()[:16]}.sqlite")
