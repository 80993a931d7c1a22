"""Unpacking within a limit of memory.

Data from elsewhere may unpack to a multiple of its packed size. The lines of runs may also unpack to a fixed
size, however small they are packed: a model that repeats one token writes text that compresses a thousand
times.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Protocol

from r3l.core.errors import DataError

RATIO = 200  # unpacked bytes per packed byte; our choice (at most 86 in 786 stored files)
FLOOR = 1 << 20  # bytes that any file may unpack to
LINES = 1 << 30  # bytes that the lines of a run may unpack to, at any ratio; our choice


class Decompressor(Protocol):
    """A decompressor of zlib or lzma: ``eof`` is True once the end of the packed data has been read."""

    @property
    def eof(self) -> bool: ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


def most(packed: int, floor: int = FLOOR) -> int:
    """The most bytes to which ``packed`` bytes may unpack: ``floor`` + RATIO (200) * ``packed``.

    ``floor``: 1 MiB by default.
    """
    return floor + RATIO * packed


def unpacked(packed: bytes, decompressor: Decompressor, limit: int, name: object) -> bytes:
    """Unpack the first member of ``packed``. Raises DataError before it has more than ``limit`` bytes.

    The caller handles the decompressor's own errors. ``name``: the file's, for the error.
    """
    content = decompressor.decompress(packed, limit + 1)
    if len(content) > limit:
        raise _bomb(name, limit)
    return content


def bounded_lines(stream: io.BufferedIOBase, limit: int, name: object) -> Iterator[bytes]:
    """The lines of a decompressing ``stream``.

    Raises DataError before they have more than ``limit`` bytes in all; ``name``: the file's, for the error.
    """
    left = limit
    while line := stream.readline(left + 1):
        left -= len(line)
        if left < 0:
            raise _bomb(name, limit)
        yield line


def _bomb(name: object, limit: int) -> DataError:
    most_mib = f"{limit / 2**20:.0f} MiB"
    return DataError(f"{name} unpacks to more than {most_mib}, which no intact file does; get it again")
