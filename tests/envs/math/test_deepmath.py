"""DeepMath-103K: shards of the published schema are read, cleaned, split by hash and frozen; nothing else
trains."""

import json

import pyarrow
import pytest
from pyarrow import parquet
from r3l.envs.math import Math
from r3l.envs.math.task_sets import datasets
from r3l.envs.math.task_sets.datasets import key_of

from r3l.core.errors import DataError

TEST_ROWS = {  # one problem of each test set that is not packaged, in the layout of its file
    "minerva_math_test.jsonl": {"idx": 0, "problem": "Minerva?", "solution": r"\boxed{1}"},
    "amc23_test.jsonl": {"id": 0, "problem": "AMC?", "answer": 2},
    "aime24_test.jsonl": {"id": 0, "problem": "AIME?", "answer": "033"},
}


def row(question, answer):
    """As published: a question, its answer, and what is not read."""
    solutions = {f"r1_solution_{k}": "long" for k in (1, 2, 3)}
    return {"question": question, "final_answer": answer, "difficulty": 6.0, "topic": "Algebra"} | solutions


ROWS = [
    *(row(f"Evaluate term {k}.", str(k)) for k in range(503)),
    row(r"evaluate \text{term} 0", "0"),  # the first again, laid out otherwise
    row("Is it so?", r"\text{Yes}"),
    row("is it so", r"\text{No}"),
    row("AIME", "33"),
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A data folder with two shards, and a copy of sets.json to freeze into."""
    shards = tmp_path / "deepmath"
    shards.mkdir()
    for number, part in enumerate((ROWS[:200], ROWS[200:])):
        parquet.write_table(pyarrow.Table.from_pylist(part), shards / f"train-0000{number}-of-00002.parquet")
    frozen = datasets.frozen()
    for name, content in TEST_ROWS.items():
        (tmp_path / name).write_text(json.dumps(content) + "\n")
    sets = {name.partition("_")[0]: name for name in TEST_ROWS}
    small = {name: datasets.read_set(name, tmp_path) for name in sets}
    ours = {
        name: {"rows": 1, "sha256": datasets.problems_sha256(problems)} for name, problems in small.items()
    }
    copy = tmp_path / "sets.json"
    copy.write_text(json.dumps(frozen | ours))
    monkeypatch.setattr(datasets, "FROZEN", copy)
    monkeypatch.setenv("R3L_MATH", str(tmp_path))
    for cached in (datasets.frozen, datasets.cleaned):
        cached.cache_clear()
    yield tmp_path
    for cached in (datasets.frozen, datasets.cleaned):
        cached.cache_clear()


def test_building_reads_the_shards_cleans_splits_and_freezes(folder):
    assert Math().task_set_hash("deepmath/test") == "unfrozen"
    with pytest.raises(
        DataError, match="'deepmath' is not frozen yet: .* r3l data build deepmath --env math"
    ):
        Math().tasks("deepmath/test")
    assert Math().task_sets().build("deepmath") == folder / "sets.json"
    report = datasets.frozen()["deepmath"]["cleaning"]
    overlaps = {"gsm8k": 0, "math500": 0, "minerva": 0, "olympiadbench": 0, "amc23": 0, "aime24": 1}
    counts = {"rows": 507, "duplicates": 2, "clusters": 505, "conflicting": 1, "train": 3, "test": 500}
    assert report == counts | {"overlaps": overlaps}
    test, train = Math().tasks("deepmath/test"), Math().tasks("deepmath_train/train")
    assert (len(test), len(train)) == (500, 3)
    order = sorted(key_of(f"Evaluate term {k}.") for k in range(503))
    assert [task.id for task in (*test, *train)] == [f"deepmath/{key[:16]}" for key in order]
    assert all(
        task.payload["problem"] == f"Evaluate term {task.payload['answer']}." for task in (*test, *train)
    )
    assert Math().task_set_hash("deepmath/test") == datasets.frozen()["deepmath"]["sha256"]
