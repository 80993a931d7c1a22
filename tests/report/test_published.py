"""Published numbers: the data, and what can be checked of them by hand."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal

import pytest

from r3l.config import variant
from r3l.core.errors import DataError
from r3l.report import published
from r3l.report.labels import method_label
from r3l.report.measures import MEASURES
from r3l.stats.intervals import Interval
from r3l.workflow import plan

PAPER_TABLE_1 = ("table1", "llama")  # 28 cells a benchmark: four backbones, seven methods


@pytest.fixture(scope="module")
def rows():
    return published.load()


@pytest.fixture(scope="module")
def checked(rows):
    return published.check(rows)


def test_every_number_of_the_paper_is_there(rows):
    count = Counter(row.table for row in rows)
    assert len(rows) == 818
    assert count["table1"] == 3 * 7 * 9 and count["llama"] == 7 * 9 and count["table2"] == 5 * 9


def test_some_numbers_as_printed(rows):
    def value(*key):
        (text,) = [str(r.value) for r in rows if (r.table, r.backbone, r.benchmark, r.label, r.metric) == key]
        return text

    small = "Qwen2.5-1.5B-Instruct"
    assert value("table1", small, "ALFWorld", "GRPO", "success") == "0.720"
    assert value("table1", "Qwen3-4B", "WebShop", "R3L", "reward") == "0.746"
    assert value("sync_interval", small, "ALFWorld", "GRPO (train.sync_interval=10)", "success") == "0.389"
    assert value("pivot", small, "ScienceWorld", "R3L (step=300)", "diagnosis_wrong") == "0.23"
    assert value("cost", "Qwen3-4B", "DAPO", "Critique-GRPO", "rollout_seconds") == "2318.4"


def test_what_cannot_be_k_of_n_is_what_the_specification_counted(checked):
    """spec/paper_numbers.md: ALFWorld 10 of 28 and 3 of 5 ablations; Math500 3 and 2; Minerva 8; DAPO 6 and
    2."""

    def impossible(*tables):
        return Counter(
            row.number.benchmark for row in checked if row.number.table in tables and row.is_count is False
        )

    assert impossible(*PAPER_TABLE_1) == {"ALFWorld": 10, "Math500": 3, "MinervaMath": 8, "DAPO": 6}
    # The specification lists no ablation cells of Minerva; two of them (0.112, 0.105 of 272) are impossible
    # as well.
    assert impossible("table2") == {"ALFWorld": 3, "Math500": 2, "MinervaMath": 2, "DAPO": 2}
    assert impossible("zero_shot") == impossible("alpha") == {}


def test_counts_by_hand():
    assert published.is_count(Decimal("0.928"), 140)  # 130/140 = 0.92857..., truncated
    assert published.is_count(Decimal("0.929"), 140)  # the same, rounded
    assert not published.is_count(Decimal("0.720"), 140)  # 100/140 = 0.714, 101/140 = 0.721
    assert published.is_count(Decimal("0.325"), 40) and not published.is_count(Decimal("0.330"), 40)  # 13/40
    assert published.is_count(Decimal("1.000"), 3) and published.is_count(Decimal("0"), 3)


def test_a_method_of_ours_is_looked_up_by_its_published_name():
    reference = published.Reference(
        published.load(["sync_interval"]),
        {"grpo_amplified": "GRPO+Positive", "opmd@x=1": "OPMD, odd"},
    )
    assert (
        reference.label("r3l@train.sync_interval=5", "R3L (train.sync_interval=5)")
        == "R3L (train.sync_interval=5)"
    )
    name = reference.label("grpo_amplified@train.sync_interval=5", "anything")
    score = reference.get("Qwen2.5-1.5B-Instruct", "ALFWorld", name)
    assert score and str(score.value) == "0.864"
    assert reference.label("opmd@x=1", "OPMD (x=1)") == "OPMD, odd"
    assert reference.get("Qwen2.5-1.5B-Instruct", "ALFWorld", "nobody") is None


@pytest.mark.parametrize("table", plan.tables().values(), ids=lambda table: table.table)
def test_what_a_table_calls_published_is_published(table, rows):
    labels = {row.label for row in published.load(table.published)}
    methods = {variant(method)[0] for method in table.methods} | set(table.methods)
    assert set(table.published_as.values()) <= {row.method for row in rows} | labels
    assert set(table.published_as) <= methods
    assert set(table.measures) <= set(MEASURES)
    if table.table in (
        "table1",
        "alpha",
        "retries",
        "sync_interval",
        "group_size",
    ):  # every number has a row of ours
        reference = published.Reference([], table.published_as)
        assert labels <= {reference.label(method, method_label(method)) for method in table.methods}


def test_a_score_is_success_or_reward_whichever_was_published():
    reference = published.Reference(published.load(["table1"]))
    metrics = {
        b: reference.get("Qwen3-4B", b, "R3L").metric
        for b in ("ALFWorld", "WebShop", "ScienceWorld", "GSM8K")
    }
    assert metrics == {
        "ALFWorld": "success",
        "WebShop": "reward",
        "ScienceWorld": "reward",
        "GSM8K": "success",
    }


@pytest.fixture(scope="module")
def grpo():
    rows = [row for row in published.load(["table1"]) if row.benchmark == "ALFWorld" and row.label == "GRPO"]
    return rows[0]  # 0.720


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.70, 0.74, "within interval"),
        (0.72, 0.72, "within interval"),
        (0.60, 0.71, "outside"),
        (0.73, 0.9, "outside"),
    ],
)
def test_the_published_number_lies_in_our_interval_or_outside(grpo, low, high, expected):
    row = published.against(grpo, "paper", Interval(0.70, low, high, 3, "t, 3 seeds"), 3, 3)
    assert (row["verdict"], row["verdict_reason"]) == (expected, "t, 3 seeds")
    assert (row["paper"], row["paper_metric"]) == (0.72, "success")
    assert row["paper_difference"] == pytest.approx(-0.02)


def test_too_few_seeds_are_incomplete_but_the_difference_is_shown(grpo):
    two, one = Interval(0.75, 0.7, 0.8, 2, "t, 2 seeds"), Interval(0.75, None, None, 1, "n/a (1 seed)")
    for row in (published.against(grpo, "paper", two, 2, 3), published.against(grpo, "paper", one, 1, 1)):
        assert row["verdict"] == "incomplete" and row["paper_difference"] == pytest.approx(0.03)


def test_impossible_numbers_stand_between_the_two_nearest_shares(rows):
    """0.881 of 140 games: 123 are 0.8786, 124 are 0.8857."""
    shown = published.impossible_table(published.check(rows))
    cells = [[cell.text for cell in row] for row in shown.cells()]
    assert len(cells) == published.summary(published.check(rows))["impossible"]
    assert ["0.881", "123/140 = 0.8786, 124/140 = 0.8857"] in [row[-2:] for row in cells]


DAMAGED = {
    b"\xff\xfe\x00bad": "not text in UTF-8: byte 0",
    b"": "line 1: columns are None; write table,",
    b"table,value\n": "line 1: columns are \\['table', 'value'\\]",
    b"HEADER\n1,2,3\n": "line 2: not 12 columns",
    b"HEADER\nt,b,ALFWorld,R3L,,success,share,1.5,,s,paper,\n": "line 2: value 1.5 is above 1; write shares",
    b"HEADER\nt,b,ALFWorld,R3L,,success,share,x,,s,paper,\n": "line 2: column 'value' has value 'x'",
    b"HEADER\nt,b,ALFWorld,R3L,,success,share,0.5,0,s,paper,\n": "line 2: column 'n' has value '0'",
    b"HEADER\nt,b,ALFWorld,R3L,,success,share,nan,,s,paper,\n": "line 2: column 'value' has value 'nan'",
    b'HEADER\nt,"' + b"b" * 200_000 + b'"\n': "line 2: not 12 columns",
}


@pytest.mark.parametrize("content", DAMAGED, ids=lambda content: content[:60].decode(errors="replace"))
def test_a_damaged_file_of_published_numbers_is_named_with_its_line(tmp_path, content):
    (tmp_path / "a.csv").write_bytes(
        content.replace(b"HEADER", ",".join(published.Published.model_fields).encode())
    )
    with pytest.raises(DataError, match=f"a.csv.*{DAMAGED[content]}"):
        published.load(folder=tmp_path)


def test_a_number_without_a_size_of_its_test_set_has_none(rows):
    assert {type(row.n) for row in rows} == {int, type(None)}
