from __future__ import annotations

import json
import math

import pandas as pd
import pytest
from report.runs import best, rewrite, write_run
from start_models import cell

from r3l.core.errors import DataError
from r3l.report.frame import CONSTANT_ANSWER, all_tasks
from r3l.report.paper_table import paper_table
from r3l.report.reading import read_runs
from r3l.report.scores import SCORES, score_rows
from r3l.report.table import as_stored
from r3l.runs.run_paths import find_runs


def typed(root, planned=3):
    return score_rows(read_runs(find_runs(root)), ["zero_shot", "grpo", "r3l"], "zero_shot", planned)


def rows_of(root, planned=3):
    return as_stored(typed(root, planned), SCORES)


def pick(rows, method, group):
    (row,) = [r for r in rows if (r["method"], r["group"]) == (method, group)]
    return row


def test_mean_and_interval_over_seeds(three_seeds):
    row = pick(rows_of(three_seeds), "r3l", "easy")
    half = 4.302653 * 0.25 / math.sqrt(3)  # seeds 0.5, 0.75, 1.0: sd 0.25
    assert row["mean"] == 0.75
    assert row["low"] == pytest.approx(0.75 - half, abs=1e-4)
    assert row["high"] == pytest.approx(0.75 + half, abs=1e-4)
    assert (row["seeds_done"], row["seeds_planned"], row["episodes"]) == (3, 3, 12)


def test_missing_seeds_and_single_seeds_are_shown_as_such(tmp_path):
    write_run(tmp_path, "r3l", 0, [1, 0], [0, 0])
    row = pick(rows_of(tmp_path), "r3l", "all")
    assert (row["seeds_done"], row["seeds_planned"]) == (1, 3)
    assert (row["low"], row["high"], row["interval"]) == (None, None, "n/a (1 seed)")
    assert row["difference_mean"] is None  # no zero-shot run to pair with


def test_webshop_is_compared_by_reward_which_is_what_the_paper_reports(tmp_path):
    for seed, reward in enumerate((0.65, 0.67, 0.66)):
        path = write_run(
            tmp_path, "r3l", seed, [1], [0], tier="paper", model="Qwen2.5-1.5B-Instruct", env="webshop"
        )
        episodes = [json.loads(line) | {"reward": reward} for line in (path.parent / "episodes.jsonl").open()]
        rewrite(path.parent / "episodes.jsonl", "".join(json.dumps(e) + "\n" for e in episodes))
    row = pick(rows_of(tmp_path), "r3l", "all")
    # rewards 0.66 +- 4.3027 * 0.01 / sqrt(3) hold 0.663; successes are 0.5 exactly
    assert (row["mean"], row["paper"], row["paper_metric"]) == (0.5, 0.663, "reward")
    assert (row["paper_difference"], row["verdict"]) == (-0.003, "within interval")


def test_rates_and_budget(three_seeds):
    row = pick(rows_of(three_seeds), "r3l", "easy")
    assert row["parse_failure_rate"] == 0.25
    assert row["truncation_rate"] == 0.0
    assert (row["rollouts"], row["env_steps"]) == (640, 5000)
    assert (row["generated_tokens"], row["trained_tokens"]) == (40001, 30000)
    assert pick(rows_of(three_seeds), "zero_shot", "easy")["rollouts"] == 0


def test_mixed_task_sets_are_refused(three_seeds):
    path = three_seeds / cell("alfworld", "r3l") / "seed2/evaluation.json"
    rewrite(path, path.read_text().replace("ab" * 32, "cd" * 32))
    with pytest.raises(DataError, match="one task set"):
        read_runs(find_runs(three_seeds))


def test_torn_episodes_are_left_out_and_refused_where_the_run_is_named(three_seeds, caplog):
    path = three_seeds / cell("alfworld", "r3l") / "seed2/episodes.jsonl"
    path.write_text("\n".join(path.read_text().splitlines()[:-1]))
    assert len(all_tasks(read_runs(find_runs(three_seeds)))) == 8 and "a run is left out" in caplog.text
    with pytest.raises(DataError, match=r"episodes\.jsonl changed after the run was evaluated"):
        read_runs(find_runs(three_seeds), [path.with_name("evaluation.json")])


def change(root, **more):
    """Add to the task set of every evaluation."""
    for path in root.glob("*/*/*/*/seed*/evaluation.json"):
        content = json.loads(path.read_text())
        content["task_set"] |= more
        rewrite(path, json.dumps(content))


def test_a_constant_answer_has_a_row_in_every_group_and_no_seeds(three_seeds):
    baseline = {"answer": "infeasible", "success": {"all": 0.25, "easy": 0.0, "hard": 0.5}}
    change(three_seeds, constant_answer_baseline=baseline)
    rows = [row for row in typed(three_seeds).itertuples() if row.method == CONSTANT_ANSWER]
    assert [(r.group, r.mean, r.low, r.provenance) for r in rows] == [
        (group, baseline["success"][group], None, "constant_answer_baseline")
        for group in ("easy", "hard", "all")
    ]
    write_run(three_seeds, "grpo", 0, [1, 0], [0, 0], env="webshop")
    rows = typed(three_seeds)
    table = paper_table("T", rows, [], [])
    texts = {name: cell.text for name, cell in table.section("nano tier, ours")["Constant answer"].items()}
    assert texts == {"method": "Constant answer", "ALFWorld": "0.250", "WebShop": "none"}
    assert "Constant answer" not in best(table, "nano tier, ours", "ALFWorld")
    assert list(table.section("nano tier, ours"))[-1] == "Constant answer"


def test_a_method_of_a_later_benchmark_stands_above_the_constant_answer(three_seeds):
    """RAFT ran on WebShop alone, the constant answer was measured on ALFWorld, which comes first."""
    change(three_seeds, constant_answer_baseline={"answer": "none", "success": {"all": 0.25}})
    write_run(three_seeds, "raft", 0, [1, 0], [0, 0], env="webshop")
    runs = read_runs(find_runs(three_seeds))
    alfworld = score_rows(runs[runs.env == "alfworld"], ["grpo"], "grpo", 3)
    webshop = score_rows(runs[runs.env == "webshop"], ["raft"], "grpo", 3)
    table = paper_table("T", pd.concat([alfworld, webshop]), [], [])
    assert list(table.section("nano tier, ours")) == ["GRPO", "raft", "Constant answer"]


def test_tables_say_under_which_preregistration_their_runs_were_made(three_seeds):
    def notes(rows):
        return [note for note in paper_table("Scores", rows, [], []).notes if "preregistration" in note]

    assert not notes(typed(three_seeds))
    for path in find_runs(three_seeds):
        manifest = json.loads((path.parent / "manifest.json").read_text())
        if "grpo" in path.parts:
            manifest["preregistration_sha256"] = "ab" * 32
        rewrite(path.parent / "manifest.json", json.dumps(manifest))
    rows = typed(three_seeds)
    assert {row.method: row.preregistration for row in rows.itertuples()} == {
        "zero_shot": None,
        "grpo": "ab" * 6,
        "r3l": None,
    }
    assert "ab" * 6 in notes(rows)[0]


def test_seeds_of_one_method_with_other_settings_are_named(tmp_path, caplog):
    """`--set` does not change a run's name, so its seeds can have several rates: their mean mixes them."""
    for seed, rate in enumerate((1e-4, 1e-4, 3e-4)):
        write_run(tmp_path, "grpo", seed, [1], [0], rate=rate)
        write_run(tmp_path, "raft", seed, [1], [0], rate=rate if seed < 2 else 1e-4)
    read_runs(find_runs(tmp_path))
    (warning,) = [record.getMessage() for record in caplog.records if "differ in" in record.getMessage()]
    assert "grpo/seed0" in warning and "grpo/seed2" in warning and "differ in train.lr;" in warning
