"""Files that a killed writer leaves: lines appended, torn, rewritten."""

import gzip
import json
import os
import tracemalloc

import pytest
from typing_extensions import TypedDict

from r3l.core.errors import DataError
from r3l.files import unpacking
from r3l.files.json_files import (
    Number,
    append_jsonl,
    read_json,
    read_jsonl,
    read_text,
    rewrite_jsonl,
    write_columns,
)
from r3l.files.unpacking import RATIO, most

ROWS = [{"step": 1, "text": "a" * 500}, {"step": 2, "text": "é\u2028<"}, {"step": 3, "text": ""}]


@pytest.fixture(params=["rows.jsonl", "rows.jsonl.gz"])
def path(request, tmp_path):
    file = tmp_path / request.param
    for row in ROWS:
        append_jsonl(file, row)
    return file


def test_lines_are_read_back_and_rewriting_gives_the_appended_bytes(path):
    appended = path.read_bytes()
    assert read_jsonl(path) == ROWS
    rewrite_jsonl(path, ROWS)
    assert path.read_bytes() == appended
    rewrite_jsonl(path, [])
    assert path.read_bytes() == b"" and read_jsonl(path) == [] == read_jsonl(path.with_name("missing"))


def test_a_writer_killed_at_any_byte_costs_only_its_own_line(path):
    whole = path.read_bytes()
    lines = [json.dumps(row, sort_keys=True).encode() + b"\n" for row in ROWS]
    two = sum(len(gzip.compress(line, mtime=0) if path.suffix == ".gz" else line) for line in lines[:2])
    for cut in range(two, len(whole) - 1):  # all of a line but its line break is a whole line
        path.write_bytes(whole[:cut])
        assert read_jsonl(path) == ROWS[:2]


def test_half_of_a_character_is_read_back(tmp_path):
    """A token may be half of an emoji: json writes and reads such text, other readers refuse it."""
    rows = [{"text": "\ud83d"}, {"text": "b"}]
    append_jsonl(tmp_path / "rows.jsonl", rows[0])
    append_jsonl(tmp_path / "rows.jsonl", rows[1])
    assert read_jsonl(tmp_path / "rows.jsonl") == rows


def test_a_damaged_file_is_an_error_that_names_it(path):
    content = bytearray(path.read_bytes())
    content[0:2] = b"##"
    path.write_bytes(content)
    with pytest.raises(DataError, match=path.name):
        read_jsonl(path)


@pytest.mark.parametrize("line", [b"\n", b'{"a": "' + b"x" * 1000 + b'"}\n', b'{"a": 1}' + b" " * 50_000_000])
def test_a_small_file_that_unpacks_to_more_than_the_limit_is_refused(tmp_path, monkeypatch, line):
    """50 MB in 50 or 100 kB, as one line or as many, where lines may have 4 MB; nothing near it is ever held."""
    monkeypatch.setattr(unpacking, "LINES", 4 << 20)
    bomb = tmp_path / "rows.jsonl.gz"
    bomb.write_bytes(gzip.compress(line * (50_000_000 // len(line) or 1)))
    tracemalloc.start()
    with pytest.raises(
        DataError,
        match=r"rows.jsonl.gz unpacks to more than [12]\d MiB, which no intact file does; get it again",
    ):
        read_jsonl(bomb)
    assert tracemalloc.get_traced_memory()[1] < 60_000_000
    tracemalloc.stop()


@pytest.mark.parametrize("name", ["rows.jsonl.gz", "rows.json.xz"])
def test_what_a_model_has_repeated_is_read_however_well_it_compresses(tmp_path, name):
    """60 answers of 4,000 times one token."""
    rows = [{"task": str(k), "turns": [{"response": " the" * 4000}] * 10} for k in range(60)]
    path, lines = tmp_path / name, tmp_path / "rows.jsonl.gz"
    if path == lines:
        rewrite_jsonl(lines, rows)
    else:
        write_columns(path, rows)
    ratio = len(json.dumps(rows)) / path.stat().st_size
    assert ratio > RATIO and len(json.dumps(rows)) > most(path.stat().st_size)  # more than others may
    assert read_jsonl(lines) == rows


class Score(TypedDict):
    """A model like those next to the code that writes a file."""

    env: str
    groups: dict[str, Number]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"env": "math"}, "key 'groups' is missing"),
        ({"env": 3, "groups": {}}, r"key 'env' is 3 \(input should be a valid string\)"),
        (
            {"env": "math", "groups": {"all": True}},
            r"key 'groups.all' is True \(input should be a valid number\)",
        ),
        ({"env": "math", "groups": {"all": float("nan")}}, "key 'groups.all' is nan .*finite number"),
        ([], r"its content is \[\] \(input should be a valid dictionary\)"),
    ],
)
def test_a_file_that_is_not_of_its_model_is_named_with_the_key_and_the_way_out(tmp_path, content, words):
    path = tmp_path / "score.json"
    path.write_text(json.dumps(content))
    with pytest.raises(
        DataError, match=rf"score.json: {words}.*; the file is damaged. Restore it from a copy"
    ):
        read_json(path, Score)
    append_jsonl(tmp_path / "scores.jsonl", {"env": "math", "groups": {}})
    append_jsonl(tmp_path / "scores.jsonl", content)
    with pytest.raises(DataError, match=rf"scores.jsonl, line 2: {words}"):
        read_jsonl(tmp_path / "scores.jsonl", Score)


def test_values_are_given_back_as_they_were_read(tmp_path):
    """A whole number stays one, and a key that the model lacks is kept."""
    content = {"env": "math", "groups": {"all": 1}, "further": None}
    path = tmp_path / "score.json"
    path.write_text(json.dumps(content))
    assert read_json(path, Score) == content and isinstance(read_json(path, Score)["groups"]["all"], int)


@pytest.mark.parametrize("read", [read_json, read_text])
def test_a_pipe_is_refused_at_once(tmp_path, read):
    os.mkfifo(tmp_path / "a.json")
    with pytest.raises(OSError, match="it is no regular file"):
        read(tmp_path / "a.json")
