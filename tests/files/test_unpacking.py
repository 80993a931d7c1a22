"""How much a packed file may unpack to (a whole file's limit: test_json_files.py)."""

import io
import zlib

import pytest

from r3l.core.errors import DataError
from r3l.files.unpacking import FLOOR, RATIO, bounded_lines, most, unpacked


def test_what_unpacks_to_the_limit_is_read():
    packed = zlib.compress(b"a\n" * 1000)
    assert most(10) == FLOOR + 10 * RATIO
    assert unpacked(packed, zlib.decompressobj(), 2000, "x") == b"a\n" * 1000
    assert len(list(bounded_lines(io.BytesIO(b"a\n" * 1000), 2000, "x"))) == 1000
    for read in (
        lambda: unpacked(packed, zlib.decompressobj(), 1999, "x"),
        lambda: list(bounded_lines(io.BytesIO(b"abc"), 2, "x")),
    ):
        with pytest.raises(DataError, match="x unpacks to more than 0 MiB"):
            read()
