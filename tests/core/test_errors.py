"""Errors in one line."""

import pytest

from r3l.core.errors import first_line


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError("no route\nto host"), "no route"),
        (TimeoutError(), "TimeoutError"),
        (ValueError("\nsecond"), "ValueError"),
    ],
)
def test_the_first_line_of_an_error_is_never_empty(error, line):
    assert first_line(error) == line
