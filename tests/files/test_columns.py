"""Rows as columns: what is stored is what was there, in fewer bytes, and a damaged or hostile file is
refused."""

import json
import lzma
import os
import subprocess
import sys
import time
from typing import Annotated, Literal, NotRequired

import pandas as pd
import pytest
from pydantic import AfterValidator, Field
from typing_extensions import TypedDict

from r3l.core.errors import DataError
from r3l.files import unpacking
from r3l.files.cleanup import DAY
from r3l.files.json_files import (
    Number,
    columns_path,
    read_jsonl,
    read_jsonl_columns,
    rewrite_jsonl,
    write_columns,
)

ROWS = [{"step": 1, "loss": 0.1, "text": "é\u2028<"}, {"step": 2, "turns": [{"a": None}], "text": ""}]


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.jsonl.gz"])
def test_rows_are_read_from_their_columns_where_the_lines_are_not(tmp_path, name):
    lines = tmp_path / name
    write_columns(columns_path(lines), ROWS)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.json.xz"]
    assert read_jsonl(lines) == ROWS == read_jsonl(tmp_path / "rows.json.xz")
    rewrite_jsonl(lines, ROWS[:1])
    assert read_jsonl(lines) == ROWS[:1]  # the lines themselves go first


@pytest.mark.parametrize(
    "rows",
    [
        [{"step": 1, "loss": 0.1}, {"step": 2, "loss": 1e-300}],  # no key is missing
        [{"text": "half a pair: \ud800"}],  # json reads it, a faster reader does not
        [{"large": 10**30, "limit": float("inf")}],
    ],
)
def test_rows_come_back_as_they_were(tmp_path, rows):
    write_columns(tmp_path / "rows.json.xz", rows)
    assert read_jsonl(tmp_path / "rows.jsonl") == rows


def test_the_file_is_a_table_for_pandas(tmp_path):
    path = tmp_path / "rows.json.xz"
    write_columns(path, ROWS)
    assert json.loads(lzma.decompress(path.read_bytes())) == {
        "loss": [0.1, None],
        "step": [1, 2],
        "text": ["é\u2028<", ""],
        "turns": [None, [{"a": None}]],
    }
    table = pd.read_json(path)
    assert list(table["step"]) == [1, 2] and table["loss"].isna().tolist() == [False, True]


def test_equal_rows_are_equal_bytes_and_no_rows_are_a_file(tmp_path):
    for name in ("a.json.xz", "b.json.xz"):
        write_columns(tmp_path / name, [dict(reversed(row.items())) for row in ROWS])
    assert (tmp_path / "a.json.xz").read_bytes() == (tmp_path / "b.json.xz").read_bytes()
    write_columns(tmp_path / "a.json.xz", [])
    assert read_jsonl(tmp_path / "a.json.xz") == []


def packed(content):
    return lzma.compress(content if isinstance(content, bytes) else json.dumps(content).encode())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is damaged"),
        (packed({"a": [1, 2]})[:-20], "is damaged"),
        (packed(b"[" * 100_000), "is damaged"),
        (packed({"a": [1], "b": [1, 2]}), "does not hold columns of one length"),
        (packed({"a": [" " * 50_000_000]}), r"unpacks to more than \d MiB"),
        (lzma.compress(b"{}", preset=9), "is damaged.*limit"),  # a dictionary of 64 MiB, for two letters
    ],
)
def test_a_damaged_or_hostile_file_is_an_error_that_names_it(tmp_path, monkeypatch, content, words):
    monkeypatch.setattr(unpacking, "LINES", 1 << 20)  # 50 MB are too many
    path = tmp_path / "rows.json.xz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"rows.json.xz {words}"):
        read_jsonl(tmp_path / "rows.jsonl")


class Line(TypedDict):
    step: int
    loss: NotRequired[float]


@pytest.fixture
def read_columns_of(tmp_path, monkeypatch):
    monkeypatch.setenv("R3L_CACHE", str(tmp_path / "cache"))
    return lambda name: read_jsonl_columns(tmp_path / name, Line, ("step", "loss"))


def test_columns_of_lines_and_of_stored_columns_are_the_same(tmp_path, read_columns_of):
    rows = [{"step": 1, "loss": 0.5}, {"step": 2, "more": True}]
    rewrite_jsonl(tmp_path / "a.jsonl", rows)
    write_columns(tmp_path / "b.json.xz", rows)
    expected = {"step": [1, 2], "loss": [0.5, None]}
    assert read_columns_of("a.jsonl") == expected == read_columns_of("b.jsonl")
    assert read_columns_of("none.jsonl") == {"step": [], "loss": []}


def test_kept_columns_are_of_the_bytes_that_are_there(tmp_path, read_columns_of):
    """A file that changed within its size and time is read again, and so is one whose kept columns broke."""
    path = tmp_path / "a.jsonl"
    rewrite_jsonl(path, [{"step": 1}])
    modified = path.stat().st_mtime_ns
    assert read_columns_of("a.jsonl")["step"] == [1]
    rewrite_jsonl(path, [{"step": 2}])
    os.utime(path, ns=(modified, modified))
    assert read_columns_of("a.jsonl")["step"] == [2]
    for broken in ("", "{", '{"step":["2"]}'):
        for kept in (tmp_path / "cache").rglob("*.json"):
            kept.write_text(broken)
        assert read_columns_of("a.jsonl")["step"] == [2]


def test_columns_that_are_read_stay_and_those_unread_for_30_days_go(tmp_path, read_columns_of):
    for name in ("read.jsonl", "unread.jsonl"):
        rewrite_jsonl(tmp_path / name, [{"step": len(name)}])
        read_columns_of(name)
    for kept in (tmp_path / "cache").rglob("*"):
        os.utime(kept, (time.time() - 31 * DAY,) * 2)
    read_columns_of("read.jsonl")
    rewrite_jsonl(tmp_path / "new.jsonl", [{"step": 1}])
    read_columns_of("new.jsonl")
    steps = [json.loads(kept.read_text())["step"] for kept in (tmp_path / "cache").rglob("*.json")]
    assert sorted(steps) == [[1], [len("read.jsonl")]]


def test_a_cache_that_cannot_be_written_only_takes_longer(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("R3L_CACHE", str(tmp_path / "file"))
    rewrite_jsonl(tmp_path / "a.jsonl", [{"step": 1}])
    assert read_jsonl_columns(tmp_path / "a.jsonl", Line, ("step",)) == {"step": [1]}


@pytest.mark.parametrize("write", [rewrite_jsonl, lambda path, rows: write_columns(columns_path(path), rows)])
def test_a_wrong_value_is_named_by_its_line_in_either_form(tmp_path, read_columns_of, write):
    write(tmp_path / "a.jsonl", [{"step": 1}, {"step": "two"}])
    for _ in range(2):  # nothing wrong is kept
        with pytest.raises(DataError, match=r"a\.json.*, line 2: key 'step' is 'two'"):
            read_columns_of("a.jsonl")


def _not_empty(text: str) -> str:
    assert text, "is empty"
    return text


def _any_text(text: str) -> str:
    return text


MODELS = {  # what passes a laxer model and not a stricter one: the line, the two types of its key
    "a range": (-1, int, Annotated[int, Field(ge=0)]),
    "infinite numbers": (float("inf"), float, Number),
    "a list of values": ("lost", str, Literal["won", "open"]),
    "a nested model": ({"loss": 1.0}, TypedDict("Inner", {"loss": float}), Line),
    "a function": ("", Annotated[str, AfterValidator(_any_text)], Annotated[str, AfterValidator(_not_empty)]),
}


@pytest.mark.parametrize("what", MODELS)
def test_columns_that_a_laxer_model_let_pass_are_checked_again(tmp_path, monkeypatch, what):
    """As a later version of r3l meets them, whose model has the same name and keys."""
    monkeypatch.setenv("R3L_CACHE", str(tmp_path / "cache"))
    value, lax, strict = MODELS[what]
    rewrite_jsonl(tmp_path / "a.jsonl", [{"step": 1, "value": value}])
    laxer, stricter = (TypedDict("Row", {"step": int, "value": kind}) for kind in (lax, strict))
    for names in (("step",), ("step", "value")):
        assert read_jsonl_columns(tmp_path / "a.jsonl", laxer, names)["step"] == [1]
        with pytest.raises(DataError, match="line 1: key 'value"):
            read_jsonl_columns(tmp_path / "a.jsonl", stricter, names)


def test_kept_columns_are_found_by_another_process(tmp_path, monkeypatch):
    """Columns are looked up by nothing that differs from process to process, such as an address."""
    monkeypatch.setenv("R3L_CACHE", str(tmp_path / "cache"))
    rewrite_jsonl(tmp_path / "metrics.jsonl", [{"step": 1}])
    read = f"read_columns(Path({str(tmp_path)!r}))"
    code = f"from pathlib import Path\nfrom r3l.runs.step_metrics import read_columns\n{read}"
    for seed in "01":
        subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONHASHSEED": seed})
    assert len(list((tmp_path / "cache").rglob("*.json"))) == 1
