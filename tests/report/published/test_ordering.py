"""Our order of methods against the published one."""

from __future__ import annotations

import json

import pytest
from report.runs import rewrite, write_run

from r3l.core.errors import DataError
from r3l.report import published, records
from r3l.report.published import ordering
from r3l.runs.places import find_runs

LABELS = {"grpo": "GRPO", "opmd": "OPMD", "raft": "RAFT", "r3l": "R3L"}


def runs(root, wins, env="alfworld"):
    """``wins``: method -> solved of ten tasks, a value a seed."""
    for method, seeds in wins.items():
        for seed, solved in enumerate(seeds):
            bits = [1] * solved + [0] * (10 - solved)
            path = write_run(root, method, seed, bits[:5], bits[5:], env=env)
            content = json.loads(path.read_text()) | {"method_label": LABELS[method]}
            rewrite(path, json.dumps(content))
    return records.load(find_runs(root))


@pytest.fixture(scope="module")
def reference():
    return published.Reference(published.of_table("table1"))


def test_one_swapped_pair_of_four_methods(tmp_path, reference):
    # paper: GRPO .720 < RAFT .826 < OPMD .835 < R3L .928; ours swaps GRPO and RAFT: (5 - 1) / 6
    run_records = runs(tmp_path, {"grpo": [4, 4], "raft": [2, 2], "opmd": [6, 6], "r3l": [8, 8]})
    (row,) = ordering.ordering(run_records, reference)
    assert (row["methods"], row["tau"], row["metric"]) == (4, 0.667, "success")
    assert row["our_order"] == "R3L 0.800 > OPMD 0.600 > GRPO 0.400 > RAFT 0.200"
    assert row["paper_order"] == "R3L 0.928 > OPMD 0.835 > RAFT 0.826 > GRPO 0.720"
    assert (row["low"], row["high"]) == (0.667, 0.667)  # the seeds agree
    assert row["interval"] == "bootstrap, 2 seeds, too few to cover what it claims"


def test_one_seed_has_no_interval_and_ties_are_shown(tmp_path, reference):
    run_records = runs(tmp_path, {"grpo": [5], "r3l": [5, 5]})
    (row,) = ordering.ordering(run_records, reference)
    assert (row["tau"], row["low"], row["interval"]) == (0.0, None, "n/a (1 of 2 methods have 1 seed)")
    assert row["our_order"] == "GRPO = R3L 0.500" and (row["seeds_least"], row["seeds_most"]) == (1, 2)


def test_methods_without_a_published_score_are_left_out(tmp_path, reference):
    write_run(tmp_path, "zero_shot", 0, [0, 0], [0, 0])
    run_records = runs(tmp_path, {"grpo": [4], "r3l": [8]})
    assert ordering.ordering(run_records, reference)[0]["methods"] == 2


def test_webshop_is_ordered_by_reward(tmp_path, reference):
    run_records = runs(tmp_path, {"grpo": [4], "r3l": [8]}, env="webshop")
    for record in run_records:
        record.evaluation["groups"]["all"]["reward"] = {"grpo": 0.9, "r3l": 0.85}[record["method"]]
    (row,) = ordering.ordering(run_records, reference)
    assert row["metric"] == "reward" and row["our_order"] == "GRPO 0.900 > R3L 0.850" and row["tau"] == -1.0


def test_nothing_to_order_is_an_error(tmp_path, reference):
    with pytest.raises(DataError, match="two methods"):
        ordering.ordering(runs(tmp_path, {"grpo": [4]}), reference)
