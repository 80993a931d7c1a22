"""Locks of folders and files, so that one process at a time writes them. They end with their process."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from r3l.core.errors import RunDirectoryError

WAIT = 1.0  # seconds: :func:`is_locked` holds a lock for a moment


@contextmanager
def locked(path: Path, lock: Path | None = None, option: str = "--out", wait: float = WAIT) -> Iterator[None]:
    """Lock ``path``, a folder or file to be written, for this process while the block runs.

    ``lock``: the file that is locked, by default one next to ``path`` that is removed at the end; its folder
    is made. Only processes that lock too are kept out. ``option``: the command-line option that the error
    message tells the user to change. Raises RunDirectoryError if another process holds the lock for more than
    ``wait`` seconds (-1: wait without limit), or if the lock file cannot be written.
    """
    # The system frees the lock when the process ends, however it ends.
    file = lock or path.with_name(f".{path.name}.lock")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        held = FileLock(file, timeout=wait)
        held.acquire()
    except Timeout as error:
        raise RunDirectoryError(
            f"{path} is in use by another process; wait for it or choose another with {option}"
        ) from error
    except FileExistsError as error:
        raise RunDirectoryError(
            f"{error.filename} is a file, not a directory; choose another with {option}"
        ) from error
    except OSError as error:
        raise RunDirectoryError(
            f"{path} cannot be written ({error}); choose another with {option}"
        ) from error
    try:
        yield
    finally:
        if lock is None:
            file.unlink(missing_ok=True)  # while it is held: a waiting process notices that it was deleted
        held.release()


def is_locked(lock: Path) -> bool:
    """True if a process holds the lock file ``lock``; False if it is missing or cannot be read.

    Writes nothing, so folders may be read-only.
    """
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # no such file, or another user's
        return False
    return False
