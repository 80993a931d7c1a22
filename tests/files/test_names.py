"""Names that become folders: one visible part of a path, or refused."""

import pytest

from r3l.core.errors import ConfigError
from r3l.files.names import folder_name, is_folder_name

NONE = (
    "",
    " ",
    ".",
    "..",
    "a/b",
    "/",
    "../x",
    " a",
    "a\n",
    "a\0b",
    "\x1b[31m",
    "a\u202eb",
    "x" * 201,
    "é" * 101,
)


@pytest.mark.parametrize("name", NONE)
def test_what_is_no_folder(name):
    assert not is_folder_name(name)
    with pytest.raises(ConfigError, match="^method .* becomes a folder"):
        folder_name("method", name)


@pytest.mark.parametrize("name", ["nano", "r3l@alpha=5,profile=fair", "...", "Qwen2.5-1.5B", "é", "x" * 200])
def test_what_is_one(name):
    assert folder_name("method", name) == name
