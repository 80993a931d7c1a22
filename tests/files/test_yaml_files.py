"""YAML files: data alone; what cannot be read says which file and why."""

import os

import pytest

from r3l.core.errors import ConfigError
from r3l.files.yaml_files import read_yaml


def test_data_is_read(tmp_path):
    (tmp_path / "a.yaml").write_text(
        "a: 1\nb: {c: [1, 2], d: null}\nbase: &x {k: 1}\nother: {<<: *x, k: 2}\n"
    )
    assert read_yaml(tmp_path / "a.yaml") == {
        "a": 1,
        "b": {"c": [1, 2], "d": None},
        "base": {"k": 1},
        "other": {"k": 2},  # a merge is no second key
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a: 1\nb: 2\na: 3\n", "key 'a' is set twice"),
        (b"a: [", "not valid YAML"),
        (b"\xff\xfe", "not valid YAML"),
        (b"a: " + b"[" * 100_000, "has 100003 bytes; a configuration may have at most 16384"),
        (b"a: !!python/object/apply:os.system ['touch made']", "could not determine a constructor"),
        (b"a: 2024-01-01", "read as a timestamp; put quotes around"),
        (b"a: 1:30", "1:30 is read in base 60"),
        (b"a: [010]", "010 is read in base 8"),
        (
            b"a: &a [x, x]\n"
            + b"".join(
                b"%c: &%c [*%c, *%c, *%c, *%c]\n" % (k + 1, k + 1, k, k, k, k) for k in range(97, 117)
            ),
            "aliases",
        ),
        (b"a: &a [*a]", "more than 64 levels"),
        (b"a: " + b"9" * 5000, "not valid YAML"),
        (b"a: " + b"[" * 99 + b"]" * 99, "more than 64 levels"),
        (b"", "names and values"),
        (b"1: 2", "names and values"),
    ],
)
def test_all_else_is_refused(tmp_path, monkeypatch, content, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.yaml").write_bytes(content)
    with pytest.raises(ConfigError, match=message) as refused:
        read_yaml(tmp_path / "a.yaml")
    assert str(refused.value).startswith(str(tmp_path / "a.yaml")) and "\n" not in str(refused.value)
    assert [path.name for path in tmp_path.iterdir()] == ["a.yaml"]


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        read_yaml(tmp_path)


def test_a_pipe_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "a.yaml")
    with pytest.raises(ConfigError, match="cannot be read: it is no regular file"):
        read_yaml(tmp_path / "a.yaml")
