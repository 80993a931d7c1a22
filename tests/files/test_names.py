"""Names that become folders: one visible part of a path, or refused."""

import pytest

from r3l.core.errors import ConfigError
from r3l.files.names import folder_name, is_folder_name, path_name

NONE = ("", " ", ".", "..", "a/b", "/", "../x", " a", "a\n", "a\0b", "\x1b[31m", "a\u202eb", "x" * 201, "é" * 101)


@pytest.mark.parametrize("name", NONE)
def test_what_is_no_folder(name):
    assert not is_folder_name(name)
    with pytest.raises(ConfigError, match="^method .* becomes a folder"):
        folder_name("method", name)


@pytest.mark.parametrize("name", ["nano", "r3l@alpha=5,profile=fair", "...", "Qwen2.5-1.5B", "é", "x" * 200])
def test_what_is_one(name):
    assert folder_name("method", name) == name


def test_a_path_is_names_with_slashes_between_them():
    assert path_name("task set", "nano/train") == "nano/train"
    for name in ("", "/etc", "nano/", "nano//test", "nano/../test", "../test"):
        with pytest.raises(ConfigError, match="must be names with slashes between them"):
            path_name("task set", name)
