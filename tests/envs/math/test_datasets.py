"""Data sets: gold rules on published rows, sets frozen by hash, loud errors, DAPO's cleaning by hand."""

import pytest
from r3l.envs.math.task_sets import datasets
from r3l.envs.math.task_sets.datasets import clean, key_of, load, read_file
from r3l.envs.math.task_sets.published import ORIGINS

from r3l.core.errors import DataError

# Rows as published: GSM8K (MIT), MATH (MIT), OlympiadBench (MIT); the others are made up in their layout.
GSM8K = {"question": "A robe takes 2 bolts ...", "answer": "It takes 2/2=<<2/2=1>>1 bolt\n#### 1,003"}
TEXTBOOK = {
    "problem": "Find the limit.",
    "solution": r"We guess \boxed{1}. Later, \[ \boxed{ \frac{1}{2} } \]",
    "idx": 7,
}
DAPO_BARE = "What is $1+1$?"
DAPO_WRAPPED = (
    "Solve the following math problem step by step. The last line of your response should be of the form Answer: "
    f"$Answer (without quotes) where $Answer is the answer to the problem.\n\n{DAPO_BARE}\n\nRemember to put your "
    'answer on its own line after "Answer:".'
)


def olympiad(*answers):
    return {"id": 1, "question": "?", "final_answer": list(answers)}


def dapo(text):
    return {"prompt": [{"role": "user", "content": text}], "reward_model": {"ground_truth": "2"}}


@pytest.mark.parametrize(
    ("name", "row", "fields"),
    [
        ("gsm8k", GSM8K, ("4", "A robe takes 2 bolts ...", "1003")),
        ("minerva", TEXTBOOK, ("7", "Find the limit.", r"\frac{1}{2}")),
        ("math_train", {"problem": "p", "solution": r"so \boxed 2."}, ("4", "p", "2")),
        (
            "math500",
            {"unique_id": "test/algebra/1.json", "problem": "p", "answer": "x"},
            ("test/algebra/1", "p", "x"),
        ),
        ("amc23", {"id": 3, "problem": "p", "answer": 27.0}, ("3", "p", "27")),
        ("amc23", {"id": 3, "question": "p", "answer": "27.0"}, ("3", "p", "27")),
        ("aime24", {"id": 60, "problem": "p", "answer": "033"}, ("60", "p", "33")),
        ("olympiadbench", olympiad("$8$,$4$"), ("1", "?", "8, 4")),
        ("olympiadbench", olympiad("$2^{-2 / 3}$, $8$"), ("1", "?", "2^{-2 / 3}, 8")),
        ("olympiadbench", olympiad("$(2,4)$"), ("1", "?", "(2,4)")),
        ("olympiadbench", olympiad("$221,$8$"), ("1", "?", "221, 8")),
        ("olympiadbench", olympiad("8", "4"), ("1", "?", "8, 4")),
        ("dapo_raw", dapo(DAPO_BARE), ("4", DAPO_BARE, "2")),
        ("dapo_raw", dapo(DAPO_WRAPPED), ("4", DAPO_BARE, "2")),
    ],
)
def test_gold_rules(name, row, fields):
    assert ORIGINS[name].read(row, 4) == fields


@pytest.mark.parametrize(("name", "rows"), [("gsm8k", 1319), ("math500", 500), ("olympiadbench", 675)])
def test_packaged_sets_are_the_frozen_ones(monkeypatch, name, rows):
    monkeypatch.delenv("R3L_MATH", raising=False)
    problems = load(name)
    assert len(problems) == len({p.id for p in problems}) == rows
    assert all(p.source == name and p.lang == "en" and len(p.sha256) == 16 for p in problems)


def test_another_set_than_the_frozen_one_is_refused(write_jsonl, tmp_path):
    write_jsonl("gsm8k_test.jsonl", [GSM8K])
    with pytest.raises(DataError, match="set 'gsm8k' is not the frozen one: 1 records .* 1319 with efadbd97"):
        load("gsm8k", tmp_path)


def test_a_folder_without_the_file_falls_back_to_the_package_or_says_so(tmp_path):
    assert len(load("math500", tmp_path)) == 500
    with pytest.raises(DataError, match=r"has no amc23_test\.jsonl \(set 'amc23'\); docs/environments.md"):
        load("amc23", tmp_path)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (['{"question": "q"}'], r"row 1: key 'answer' is missing; it has 'question'"),
        (['{"question": "q", "answer": "#### 1"}', "{"], r"row 2: not valid JSON .* download it again"),
        (["[]"], r"row 1: not a JSON object"),
        (['{"question": "", "answer": "#### 1"}'], r"row 1: id, problem and gold must be non-empty text"),
        (['{"question": "q", "answer": "#### "}'], r"row 1: id, problem and gold must be non-empty text"),
    ],
)
def test_bad_rows_are_named(tmp_path, rows, message):
    path = tmp_path / "gsm8k_test.jsonl"
    path.write_text("\n".join(rows) + "\n")
    with pytest.raises(DataError, match=message):
        read_file(path, ORIGINS["gsm8k"])


def test_a_file_in_another_encoding_is_named(tmp_path):
    path = tmp_path / "gsm8k_test.jsonl"
    path.write_bytes(
        b'{"question": "q", "answer": "#### 1"}\n' + '{"question": "caf\u00e9"}\n'.encode("latin-1")
    )
    with pytest.raises(
        DataError, match=r"gsm8k_test.jsonl, after row \d: unreadable .*utf-8.*download it again"
    ):
        read_file(path, ORIGINS["gsm8k"])


def test_the_hub_is_asked_for_what_no_folder_has(monkeypatch, tmp_path):
    """The real client on a cache laid out as the hub's own; offline, so that nothing is asked for."""
    import huggingface_hub.constants as constants
    import pyarrow
    from pyarrow import parquet

    monkeypatch.delenv("R3L_MATH", raising=False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(
        DataError, match=r"'amc23' cannot be had from the hub \(math-ai/amc23.*amc23_test\.jsonl"
    ):
        load("amc23")
    cached = tmp_path / "datasets--math-ai--amc23"
    snapshot = cached / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("0123")
    rows = [{"id": 0, "question": "How far?", "answer": 27.0, "url": ""}]
    parquet.write_table(pyarrow.Table.from_pylist(rows), snapshot / "test-00000-of-00001.parquet")
    monkeypatch.setattr(
        datasets, "frozen", lambda: {"amc23": {"rows": 1, "sha256": datasets.problems_sha256([wanted])}}
    )
    wanted = datasets.record("amc23", "0", "How far?", "27")
    assert load("amc23") == [wanted]


def test_cleaning_by_hand():
    clean_rows = [(f"Problem {k}", str(k)) for k in range(302)]
    rows = [
        *clean_rows,
        ("problem 0 .", "0"),  # a duplicate
        ("contradiction", "1"),
        ("Contradiction", "2"),
        ("In a test.", "3"),
    ]
    train, test, report = clean(rows, {"amc23": ["in a test"], "gsm8k": ["elsewhere"]}, held_out=300)
    assert report.as_dict() == {
        "rows": 306,
        "duplicates": 2,
        "clusters": 304,
        "conflicting": 1,
        "overlaps": {"amc23": 1, "gsm8k": 0},
        "train": 2,
        "test": 300,
    }
    assert [key for key, _, _ in test + train] == sorted(key_of(problem) for problem, _ in clean_rows)
    assert clean(reversed(rows), {"amc23": ["in a test"]}, 300)[:2] == (train, test)
