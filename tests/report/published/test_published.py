"""Published numbers: the data, and what can be checked of them by hand."""

from __future__ import annotations

import math
from collections import Counter
from decimal import ROUND_DOWN, ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from r3l.envs.math.benchmarks import Prompt

from r3l.config import variant
from r3l.core.errors import ConfigError, DataError
from r3l.report import published
from r3l.report.labels import method_label
from r3l.report.published import checks
from r3l.report.tables.measures import MEASURES
from r3l.workflow import plan

PAPER_TABLE_1 = ("table1", "llama")  # 28 cells a benchmark: four backbones, seven methods


@pytest.fixture(scope="module")
def rows():
    return published.load()


@pytest.fixture(scope="module")
def checked(rows):
    return checks.check(rows)


def test_every_number_of_the_paper_is_there(rows):
    count = Counter(row.table for row in rows)
    assert len(rows) == 818
    assert count["table1"] == 3 * 7 * 9 and count["llama"] == 7 * 9 and count["table2"] == 5 * 9
    assert (count["alpha"], count["sync_interval"], count["group_size"], count["retries"]) == (30, 64, 60, 4)
    assert (count["retry_improvement"], count["cost"], count["pivot"]) == (12, 64, 60)
    assert (count["zero_shot"], count["post_training"], count["in_domain"]) == (48, 48, 20)
    assert (count["rltf"], count["rltf_second_notes"]) == (54, 20)


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
    """spec/paper_numbers.md: ALFWorld 10 of 28 and 3 of 5 ablations; Math500 3 and 2; Minerva 8; DAPO 6 and 2."""

    def impossible(*tables):
        return Counter(row["benchmark"] for row in checked if row["table"] in tables and row["is_count"] is False)

    assert impossible(*PAPER_TABLE_1) == {"ALFWorld": 10, "Math500": 3, "MinervaMath": 8, "DAPO": 6}
    # The specification lists no ablation cells of Minerva; two of them (0.112, 0.105 of 272) are impossible as well.
    assert impossible("table2") == {"ALFWorld": 3, "Math500": 2, "MinervaMath": 2, "DAPO": 2}
    assert impossible("zero_shot") == impossible("alpha") == {}
    named = [
        r["value"] for r in checked if r["table"] == "table1" and r["benchmark"] == "Math500" and not r["is_count"]
    ]
    assert named == ["0.663", "0.705", "0.753"]


def test_summary_over_all(checked):
    assert checks.summary(checked) == {
        "cells": 818,
        "checked": 492,
        "impossible": 77,
        "in_conflict": 72,
        "quantities_in_conflict": 30,
    }


def test_conflicts_are_those_of_the_specification_and_four_on_math500(rows):
    conflicts = {
        quantity[1:3]: sorted({str(row.value) for row in same})
        for quantity, same in checks.conflicts(rows).items()
        if quantity[0] == "Qwen2.5-1.5B-Instruct"
    }
    assert conflicts == {
        ("ALFWorld", "GRPO"): ["0.720", "0.747", "0.780"],
        ("ScienceWorld", "R3L"): ["0.385", "0.482"],
        ("ALFWorld", "Reflect-GRPO"): ["0.812", "0.878"],
        ("ALFWorld", "Critique-GRPO"): ["0.854", "0.914"],
        ("ScienceWorld", "Reflect-GRPO"): ["0.347", "0.388"],
        ("ScienceWorld", "Critique-GRPO"): ["0.314", "0.406"],
        ("WebShop", "GRPO"): ["0.614", "0.620"],
        ("WebShop", "Reflect-GRPO"): ["0.559", "0.634"],
        ("WebShop", "Critique-GRPO"): ["0.613", "0.648"],
        # not in the specification's list
        ("Math500", "GRPO"): ["0.367", "0.368"],
        ("Math500", "Reflect-GRPO"): ["0.376", "0.382"],
        ("Math500", "Critique-GRPO"): ["0.398", "0.404"],
        ("Math500", "R3L"): ["0.424", "0.432"],
    }


def test_a_conflict_is_shown_with_every_value_and_its_tables(rows):
    rebuttal = [row for row in rows if row.table == "rebuttal_december"]
    (row,) = checks.check(rebuttal, rows)
    assert row["conflict"] == "0.720 (sync_interval, table1, table2); 0.747 (rebuttal_december); 0.780 (group_size)"
    assert checks.check(rebuttal)[0]["conflict"] is None  # nothing to contradict it among itself


def test_counts_by_hand():
    assert checks.is_count(Decimal("0.928"), 140)  # 130/140 = 0.92857..., truncated
    assert checks.is_count(Decimal("0.929"), 140)  # the same, rounded
    assert not checks.is_count(Decimal("0.720"), 140)  # 100/140 = 0.714, 101/140 = 0.721
    assert checks.is_count(Decimal("0.325"), 40) and not checks.is_count(Decimal("0.330"), 40)  # 13/40
    assert (
        checks.is_count(Decimal("0.43"), 100)
        and checks.is_count(Decimal("1.000"), 3)
        and checks.is_count(Decimal("0"), 3)
    )
    assert checks.nearest_count(Decimal("0.720"), 140) == 101  # 100.8


def test_what_docs_tables_says_of_the_numbers(rows):
    def values(table, *metrics):
        return {r.quantity[:4]: r.value for r in rows if r.table == table and (not metrics or r.metric in metrics)}

    sizes = values("group_size")
    steps = [sizes[(*key[:3], "group_size=16")] - value for key, value in sizes.items() if not key[3]]
    assert len(steps) == 20 and (min(steps), max(steps)) == (Decimal("0.004"), Decimal("0.008"))

    start = {(b, bench): value for (b, bench, _, form), value in values("zero_shot").items() if form == "<answer>"}
    trained = [item for table in PAPER_TABLE_1 for item in values(table).items() if item[0][:2] in start]
    assert (len(trained), sum(value < start[key[:2]] for key, value in trained)) == (168, 71)

    peaks = {r.benchmark: str(r.value) for r in rows if r.label == "OPMD" and r.note.startswith("collapsed")}
    assert peaks == {"GSM8K": "0.463", "Math500": "0.292"}
    assert all(str(values("table1")["Qwen2.5-1.5B-Instruct", b, "OPMD", ""]) == value for b, value in peaks.items())

    parts = Counter()
    for row in rows:
        if row.table == "pivot" and row.metric.startswith("diagnosis"):
            parts[row.backbone, row.benchmark, row.setting] += row.value
    assert {key: str(total) for key, total in parts.items() if total != 1} == {
        ("Qwen2.5-1.5B-Instruct", "ALFWorld", "step=400"): "0.99",
        ("Qwen2.5-7B-Instruct", "WebShop", "step=400"): "1.01",
    }


def test_standard_error_by_hand():
    assert checks.standard_error(Decimal("0.5"), 100) == 0.05
    assert checks.standard_error(Decimal("0.928"), 140) == pytest.approx(0.02185, abs=1e-5)


def test_rewards_with_partial_credit_are_no_counts_but_have_an_upper_bound(checked):
    row = next(r for r in checked if r["table"] == "table1" and r["benchmark"] == "WebShop")
    assert (row["is_count"], row["nearest"]) == (None, None)
    assert row["standard_error"] == pytest.approx(math.sqrt(0.45 * 0.55 / 100), abs=1e-4)


@given(n=st.integers(1, 2000), share=st.floats(0, 1), digits=st.integers(1, 4))
def test_every_count_is_possible_however_it_is_printed(n, share, digits):
    k = round(share * n)
    for rounding in (ROUND_HALF_UP, ROUND_HALF_EVEN, ROUND_DOWN):
        printed = (Decimal(k) / n).quantize(Decimal(1).scaleb(-digits), rounding)
        assert checks.is_count(printed, n)


@given(n=st.integers(1, 300), thousandths=st.integers(0, 1000))
def test_possible_means_some_count_is_printed_so(n, thousandths):
    printable = set()
    for k in range(n + 1):
        lower, rest = divmod(1000 * k, n)
        printable |= {lower, lower + (2 * rest >= n)} | ({lower} if 2 * rest == n else set())
    assert checks.is_count(Decimal(thousandths).scaleb(-3), n) == (thousandths in printable)


HEADER = ",".join(published.COLUMNS)
LINE = "table1,M,ALFWorld,GRPO,,success,share,0.72,140,s,paper,"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([HEADER, LINE.replace("0.72", "o.72")], r"x\.csv, line 2: column 'value' has value 'o.72'"),
        ([HEADER, LINE, LINE.replace("GRPO", "RAFT").replace("140", "0")], r"line 3: column 'n' has value '0'"),
        ([HEADER, LINE.replace("paper", "blog")], r"line 2: column 'source_kind' has value 'blog'"),
        ([HEADER, LINE.replace("0.72", "72")], r"line 2: .*above 1; write shares as fractions"),
        ([HEADER, LINE + ",more"], r"line 2: not 12 columns; put text that has a comma in quotes"),
        ([HEADER, LINE.removesuffix(",")], r"line 2: not 12 columns"),
        ([HEADER, LINE, LINE], r"line 3: table1 has M/ALFWorld/GRPO//success already in .*line 2; keep one"),
        (["table,value", "table1,0.7"], r"line 1: columns are \['table', 'value'\]; write table,backbone"),
    ],
)
def test_bad_data_names_file_line_column_and_fix(tmp_path, lines, message):
    (tmp_path / "x.csv").write_text("\n".join(lines) + "\n")
    with pytest.raises(DataError, match=message):
        published.load(tmp_path)


def test_an_empty_folder_and_an_unknown_table_are_errors(tmp_path, rows):
    with pytest.raises(DataError, match="restore its csv files"):
        published.load(tmp_path)
    with pytest.raises(ConfigError, match="no published table 'tabel1'; known: ablation_response, alpha"):
        published.of_table("tabel1", rows)


def test_a_method_of_ours_is_looked_up_by_its_published_name(rows):
    reference = published.Reference(
        published.of_table("sync_interval", rows), {"grpo_amplified": "GRPO+Positive", "opmd@x=1": "OPMD, odd"}
    )
    assert reference.label("r3l@train.sync_interval=5", "R3L (train.sync_interval=5)") == "R3L (train.sync_interval=5)"
    name = reference.label("grpo_amplified@train.sync_interval=5", "anything")
    score = reference.score("Qwen2.5-1.5B-Instruct", "ALFWorld", name)
    assert score and str(score.value) == "0.864"
    assert reference.label("opmd@x=1", "OPMD (x=1)") == "OPMD, odd"
    assert reference.score("Qwen2.5-1.5B-Instruct", "ALFWorld", "nobody") is None


@pytest.mark.parametrize("table", plan.tables().values(), ids=lambda table: table.table)
def test_what_a_table_calls_published_is_published(table, rows):
    labels = {row.label for name in table.published for row in published.of_table(name, rows)}
    methods = {variant(method)[0] for method in table.methods} | set(table.methods)
    assert set(table.published_as.values()) <= {row.method for row in rows} | labels
    assert set(table.published_as) <= (set(get_args(Prompt)) if table.kind == "benchmarks" else methods)
    assert set(table.measures) <= set(MEASURES)
    if table.table in ("table1", "alpha", "retries", "sync_interval", "group_size"):  # every number has a row of ours
        reference = published.Reference([], table.published_as)
        assert labels <= {reference.label(method, method_label(method)) for method in table.methods}


def test_a_score_is_success_or_reward_whichever_was_published(rows):
    reference = published.Reference(published.of_table("table1", rows))
    metrics = {
        b: reference.score("Qwen3-4B", b, "R3L").metric for b in ("ALFWorld", "WebShop", "ScienceWorld", "GSM8K")
    }
    assert metrics == {"ALFWorld": "success", "WebShop": "reward", "ScienceWorld": "reward", "GSM8K": "success"}
