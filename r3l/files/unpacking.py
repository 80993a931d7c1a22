"""Unpacking what may come from strangers: nothing takes more memory than its packed size allows."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Protocol

from r3l.core.errors import DataError

RATIO = 200  # of unpacked to packed bytes; our choice (the most of 786 stored files is 86)
FLOOR = 1 << 20  # bytes that anything may unpack to


class Decompressor(Protocol):
    """Of zlib or lzma."""

    @property
    def eof(self) -> bool: ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


def most(packed: int) -> int:
    """Bytes that a file or text of ``packed`` bytes may unpack to."""
    return FLOOR + RATIO * packed


def unpacked(packed: bytes, decompressor: Decompressor, limit: int, name: object) -> bytes:
    """What ``packed`` begins with, as far as it goes. Raises DataError before it takes more than ``limit`` bytes.

    The decompressor's own errors are its caller's.
    """
    content = decompressor.decompress(packed, limit + 1)
    if len(content) > limit:
        raise _bomb(name, limit)
    return content


def bounded_lines(stream: io.BufferedIOBase, limit: int, name: object) -> Iterator[bytes]:
    """The lines of a decompressing ``stream``. Raises DataError before they take more than ``limit`` bytes
    in all.
    """
    left = limit
    while line := stream.readline(left + 1):
        left -= len(line)
        if left < 0:
            raise _bomb(name, limit)
        yield line


def _bomb(name: object, limit: int) -> DataError:
    return DataError(f"{name} unpacks to more than {limit / 2**20:.0f} MiB, which no intact file does; get it again")
