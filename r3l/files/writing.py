"""Atomic writes of files and folders, and checks before work begins that a file can be written."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from r3l.core.errors import R3LError, RunDirectoryError
from r3l.files.redact import masked

BEFORE = ".before"  # ending of a folder that is being replaced where names cannot be exchanged
DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)  # of a write that names no file
AT_FDCWD = -100  # of Linux's renameat2
RENAME_EXCHANGE = 2


def write_atomic(path: Path, content: bytes) -> None:
    """Write ``path`` atomically: a reader sees the old file or the complete new one.

    That holds even if the writer is killed, since a finished file is renamed. Makes the folder if it is
    missing. Raises OSError if it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary(path)
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_text_atomic(path: Path, text: str) -> None:
    """Write text in UTF-8, atomically (a reader sees the old file or the new one), with secrets masked.

    Makes the folder if it is missing. Raises OSError if it cannot be written.
    """
    write_atomic(path, masked(text).encode())


def write_json_atomic(path: Path, content: Any) -> None:
    """Write JSON, atomically and with secrets masked; sorted keys, so equal content gives equal bytes.

    Makes the folder if it is missing. Raises OSError if it cannot be written, TypeError for a value that JSON
    does not have.
    """
    write_text_atomic(path, json.dumps(content, indent=2, sort_keys=True) + "\n")


@contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder to fill, which takes the name ``folder`` at once when the block has ended.

    A reader sees the old folder or the complete new one, even if the writer is killed; if the block raises,
    the old one stays. Where names cannot be exchanged (NFS) the folder is missing for a moment, and
    :func:`remove_unfinished` gives a killed writer's old one back. If ``folder`` is a link, the folder that
    it leads to is replaced. All files get the mode of a new file. Raises RunDirectoryError if the disk is
    full or cannot be written.
    """
    if folder.is_symlink():
        folder = folder.resolve()
    if folder.is_file():
        raise RunDirectoryError(f"{folder} is a file, not a directory; move it away or choose another place")
    temporary = _temporary(folder)
    shutil.rmtree(temporary, ignore_errors=True)  # of a killed process that had the same number
    try:
        temporary.mkdir(parents=True)
        yield temporary
        # safetensors makes files that their owner alone may read.
        mode = temporary.stat().st_mode & 0o666
        for file in temporary.rglob("*"):
            if file.is_file() and file.stat().st_mode & 0o666 != mode:
                file.chmod(mode)
        # rename(2) replaces an empty folder only; one with content is exchanged, then deleted below.
        if folder.is_dir() and any(folder.iterdir()):
            _exchange(temporary, folder)  # the temporary folder then holds the old content
        else:
            os.replace(temporary, folder)
    except Exception as error:
        if not is_write_error(error, temporary):
            raise
        raise RunDirectoryError(
            f"{folder} cannot be written ({error}); what was there stays: free the disk or choose another "
            "folder, then re-run to resume"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _temporary(path: Path) -> Path:
    """A name in the same folder, so that renaming is atomic.

    Process and thread keep writers of the same path apart, and let r3l.files.cleanup find the files of
    killed processes.
    """
    return path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")


def _exchange(new: Path, old: Path) -> None:
    """Exchange the names of two folders in one step; in two on file systems that cannot, such as NFS."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not libc.renameat2(AT_FDCWD, os.fsencode(new), AT_FDCWD, os.fsencode(old), RENAME_EXCHANGE):
        return
    code = ctypes.get_errno()
    if code not in (errno.EINVAL, errno.ENOSYS):
        raise OSError(code, os.strerror(code), str(old))
    # A writer that is killed between the two leaves the old folder under a name that r3l.files.cleanup
    # gives back.
    before = old.with_name(f".{old.name}{BEFORE}")
    os.replace(old, before)
    os.replace(new, old)
    shutil.rmtree(before)


def is_write_error(error: Exception, folder: Path) -> bool:
    """True if ``error`` says that writing in ``folder`` failed.

    That is an OSError that names a file in ``folder``, an OSError without a file whose number is in DISK (as
    for a full disk), or any other error with "(os error" in its text, as packages written in Rust raise it.
    An R3LError is never one.
    """
    if isinstance(error, R3LError):
        return False
    if not isinstance(error, OSError):
        # safetensors and tokenizers write in Rust, and raise their own exceptions.
        return "(os error " in str(error)
    named = [name for name in (error.filename, error.filename2) if name is not None]  # shutil: from, to
    if not named:
        return error.errno in DISK
    return any(Path(str(name)).absolute().is_relative_to(folder.absolute()) for name in named)


@contextmanager
def writable(path: Path, make: bool = True) -> Iterator[None]:
    """Turn any OSError in the block into RunDirectoryError, which names ``path`` and the fix.

    ``make``: first make the folder of ``path``.
    """
    try:
        if make:
            path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        if isinstance(error, R3LError):  # which says why already
            raise
        raise RunDirectoryError(
            f"{path} cannot be written ({error.strerror}); choose another path"
        ) from error


def check_writable(path: Path) -> None:
    """Raise RunDirectoryError if the file or folder ``path`` could not be written; it need not exist.

    Leaves nothing there: folders that are missing are not made.
    """
    there = next(folder for folder in (path.absolute().parent, *path.absolute().parents) if folder.exists())
    with writable(path, make=False), tempfile.TemporaryFile(dir=path if path.is_dir() else there):
        pass


def check_room(folder: Path, needed: int) -> None:
    """Raise RunDirectoryError if the disk of ``folder`` has less than ``needed`` bytes free.

    ``folder`` must exist (else FileNotFoundError).
    """
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise RunDirectoryError(
            f"{folder} has no room: {needed / 2**20:,.0f} MiB are needed, {free / 2**20:,.0f} MiB are "
            "free. Free some; re-run to resume"
        )
