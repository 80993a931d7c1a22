"""Removal of what killed processes (never live ones) left unfinished, and of cached files not in use."""

from __future__ import annotations

import glob
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from r3l.files.writing import BEFORE

DAY = 86_400.0  # seconds
LOCK = ".r3l.lock"  # in a temporary folder; held as long as the folder is in use
YOUNG = 60.0  # seconds in which a process has locked the folder that it made; our choice
_UNFINISHED = re.compile(r"\.(.+?)\.(\d+)(?:\.\d+)?\.tmp")  # r3l.files.writing: .NAME.PROCESS[.THREAD].tmp


def remove_unfinished(*folders: Path, name: str = "") -> None:
    """Remove half-written files and folders of killed processes of this machine, directly in ``folders``.

    If a killed process had moved a folder away to replace it, and the new folder is missing, the old one is
    moved back. Missing ``folders`` are skipped. The caller must hold the locks of ``folders``. With ``name``
    only leftovers of the file or folder of that name are removed, and the caller must lock only that one.
    """
    only = glob.escape(name) or "*"
    for path in (path for folder in folders for path in folder.glob(f".{only}.*.tmp")):
        match = _UNFINISHED.fullmatch(path.name)
        if match and name in ("", match[1]) and not psutil.pid_exists(int(match[2])):
            _remove(path)

    # A folder that was being replaced in two steps: the old one goes back unless the new one is there.
    for before in (path for folder in folders for path in folder.glob(f".{only}{BEFORE}")):
        target = before.with_name(before.name.removeprefix(".").removesuffix(BEFORE))
        if target.exists():
            _remove(before)
        else:
            before.rename(target)


def remove_unused(folder: Path, days: int) -> None:
    """Remove the files in ``folder``, at any depth, that were not modified for ``days`` days.

    It looks at most once a day: it writes a file ``.looked`` into ``folder`` and reads its time. If the
    reader of a cache sets the time of each file that it reads, files in use stay. A file that cannot be
    removed stays.
    """
    looked = folder / ".looked"
    with suppress(OSError):
        now = time.time()
        if looked.exists() and now - looked.stat().st_mtime < DAY:
            return
        looked.touch()
        for path in folder.rglob("*"):
            with suppress(OSError):  # another process may remove it at the same time
                if path.is_file() and now - path.stat().st_mtime > days * DAY:
                    path.unlink()


@contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """Make a folder in the system's temporary folder and yield its path; it is deleted after the block.

    Its name begins with ``prefix``. Such folders that killed processes left a minute ago or earlier are
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
