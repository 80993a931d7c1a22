"""Atomic writes, and checks before work begins that a file can be written."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from r3l.core.errors import RunDirectoryError


def write_atomic(path: Path, content: bytes) -> None:
    """Write and rename: a reader sees the old file or the complete new one, even if the writer is killed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # In the same folder, so that renaming is atomic. Process and thread keep writers of the same file
    # apart, and let r3l.files.cleanup tell the files of killed processes.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text_atomic(path: Path, text: str) -> None:
    """:func:`write_atomic` in UTF-8."""
    write_atomic(path, text.encode())


def write_json_atomic(path: Path, content: Any) -> None:
    """Write JSON with sorted keys and a final newline: equal content gives equal bytes."""
    write_text_atomic(path, json.dumps(content, indent=2, sort_keys=True) + "\n")


@contextmanager
def writable(path: Path, make: bool = True) -> Iterator[None]:
    """Turn a failed write in the block into an error that names the file and the fix; ``make``: make its
    folder.
    """
    try:
        if make:
            path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise RunDirectoryError(
            f"{path} cannot be written ({error.strerror}); choose another path with --out"
        ) from error


def check_writable(path: Path) -> None:
    """Raises RunDirectoryError if nothing can be written at ``path``. Leaves nothing there."""
    there = next(folder for folder in (path.absolute().parent, *path.absolute().parents) if folder.exists())
    with writable(path, make=False), tempfile.TemporaryFile(dir=path if path.is_dir() else there):
        pass


def check_room(folder: Path, needed: int) -> None:
    """Raises RunDirectoryError if the disk of ``folder`` has less than ``needed`` bytes free."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise RunDirectoryError(
            f"{folder} has no room: {needed / 2**20:,.0f} MiB are needed, {free / 2**20:,.0f} MiB are "
            "free. Free some; re-run to resume"
        )
