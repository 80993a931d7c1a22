"""Handles of libdownward, Fast Downward's C library: each holds one problem, so every open engine needs its own."""

from __future__ import annotations

import ctypes
import mmap
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

# Loading costs milliseconds and memory: engines that are closed leave theirs to the next one.
_IDLE: list[Any] = []

# ELF-64, little-endian (elf.h): offsets in the file header, then in a program header.
ELF_64 = b"\x7fELF\x02\x01"
PROGRAM_HEADERS, ENTRY_SIZE_AND_COUNT = 32, 54
SEGMENT = struct.Struct("<I4xQ16xQ")  # type, offset in the file, size in the file
LOADED = 1


def take() -> Any:
    """A handle that nobody else has. Give it back with :func:`leave`."""
    return _IDLE.pop() if _IDLE else _load()


def leave(handle: Any) -> None:
    """Take back the handle of an engine that is closed."""
    _IDLE.append(handle)


def _load() -> Any:
    """fast_downward copies the whole file for each handle, 33 MB, of which 32 are debugging information."""
    from fast_downward import interface

    whole = Path(interface.DOWNWARD_LIB_PATH)
    with tempfile.TemporaryDirectory() as folder:
        part = Path(folder) / whole.name
        part.write_bytes(loaded_part(whole))
        with mock.patch.object(interface, "DOWNWARD_LIB_PATH", str(part)):
            handle = interface.load_lib()
    # Exported by libdownward but left out of the Python layer.
    handle.get_state_id.argtypes, handle.get_state_id.restype = [], ctypes.c_int
    handle.set_state_id.argtypes, handle.set_state_id.restype = [ctypes.c_int], None
    return handle


def loaded_part(path: Path) -> bytes:
    """The bytes of a shared library up to the last that the loader maps; all of them where it is not ELF-64."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as whole:
        is_elf = whole[: len(ELF_64)] == ELF_64
        return whole[: max(_segment_ends(whole)) if is_elf else len(whole)]


def _segment_ends(whole: mmap.mmap) -> Iterator[int]:
    (start,) = struct.unpack_from("<Q", whole, PROGRAM_HEADERS)
    size, count = struct.unpack_from("<HH", whole, ENTRY_SIZE_AND_COUNT)
    for number in range(count):
        kind, offset, length = SEGMENT.unpack_from(whole, start + number * size)
        if kind == LOADED:
            yield offset + length
