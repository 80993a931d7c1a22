"""What a killed process leaves beside its files; the next one removes it, but nothing that a live process
holds.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

LOCK = ".r3l.lock"  # held for as long as its folder is in use
YOUNG = 60.0  # seconds in which whoever has made a folder has locked it; our choice
_UNFINISHED = re.compile(r"\..+?\.(\d+)(?:\.\d+)?\.tmp")  # as r3l.files.writing names them: name, process[, thread]


def remove_unfinished(*folders: Path) -> None:
    """Remove what killed processes of this machine were writing in ``folders``, which the caller has
    locked.
    """
    for path in (path for folder in folders for path in folder.glob(".*.tmp")):
        match = _UNFINISHED.fullmatch(path.name)
        if match and not psutil.pid_exists(int(match[1])):
            _remove(path)


@contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """A folder in the system's temporary one, until the end of the block. Those of killed processes are
    removed.
    """
    for path in Path(tempfile.gettempdir()).glob(f"{prefix}*/{LOCK}"):
        with suppress(OSError, Timeout):  # another user's, or in use
            if time.time() - path.stat().st_mtime > YOUNG:
                with FileLock(path, timeout=0):
                    _remove(path.parent)
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    try:
        with FileLock(folder / LOCK):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
