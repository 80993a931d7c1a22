from __future__ import annotations

import csv
import json
import math

import pytest
from report.runs import best, rewrite, write_run
from rich.console import Console
from start_models import cell

from r3l.core.errors import DataError, RunDirectoryError
from r3l.report import records
from r3l.report.html import tables as html_tables
from r3l.report.render import to_terminal
from r3l.report.rows import seeds_shown, write_csv
from r3l.report.tables import printed, score_details
from r3l.report.tables.scores import score_rows
from r3l.runs.places import find_runs


def rows_of(root, planned=3):
    runs = records.load(find_runs(root))
    return score_rows(runs, ["zero_shot", "grpo", "r3l"], "zero_shot", planned)


def pick(rows, method, group):
    (row,) = [r for r in rows if (r["method"], r["group"]) == (method, group)]
    return row


def test_order_is_group_then_method_with_zero_shot_first(three_seeds):
    order = [(r["group"], r["method"]) for r in rows_of(three_seeds)]
    methods = ("zero_shot", "grpo", "r3l")
    assert order == [(group, method) for group in ("easy", "hard", "all") for method in methods]


def test_mean_and_interval_over_seeds(three_seeds):
    row = pick(rows_of(three_seeds), "r3l", "easy")
    half = 4.302653 * 0.25 / math.sqrt(3)  # seeds 0.5, 0.75, 1.0: sd 0.25
    assert row["mean"] == 0.75
    assert row["low"] == pytest.approx(0.75 - half, abs=1e-4)
    assert row["high"] == pytest.approx(0.75 + half, abs=1e-4)
    assert (row["seeds_done"], row["seeds_planned"], row["episodes"]) == (3, 3, 12)


def test_difference_is_paired_with_zero_shot(three_seeds):
    row = pick(rows_of(three_seeds), "r3l", "easy")
    assert row["difference_mean"] == 0.5  # 0.25, 0.5, 0.75
    assert row["probability_of_improvement"] == 1.0
    assert row["p_holm"] >= row["p_value"] > 0
    assert (row["pairs"], row["spread"]) == (3, 0.25)
    assert row["smallest_difference"] == round(3.2640435 * 0.25, 4)  # standard deviations that three seeds show
    assert row["smallest_difference_holm"] > row["smallest_difference"]
    assert pick(rows_of(three_seeds), "zero_shot", "easy")["difference_mean"] is None


def test_missing_seeds_and_single_seeds_are_shown_as_such(tmp_path):
    write_run(tmp_path, "r3l", 0, [1, 0], [0, 0])
    row = pick(rows_of(tmp_path), "r3l", "all")
    assert (row["seeds_done"], row["seeds_planned"]) == (1, 3)
    assert (row["low"], row["high"], row["interval"]) == (None, None, "n/a (1 seed)")
    assert row["difference_mean"] is None  # no zero-shot run to pair with


def test_more_seeds_than_were_asked_for_are_a_number_alone():
    shown = [seeds_shown({"seeds_done": done, "seeds_planned": 3}) for done in (0, 3, 15)]
    assert shown == ["0/3", "3/3", "15"]


def test_nano_is_never_compared_with_the_paper(three_seeds):
    for row in rows_of(three_seeds):
        assert row["tier"] == "nano"
        assert (row["paper"], row["verdict"]) == (None, "not comparable")
        assert "nano tier" in row["verdict_reason"]


def test_paper_tier_is_compared(tmp_path):
    for seed, wins in enumerate([13, 13, 14]):
        bits = [1] * wins + [0] * (14 - wins)
        write_run(tmp_path, "r3l", seed, bits, bits, tier="paper", model="Qwen2.5-1.5B-Instruct")
    row = pick(rows_of(tmp_path), "r3l", "all")
    assert (row["paper"], row["verdict"]) == (0.928, "within interval")
    assert row["paper_difference"] == pytest.approx(40 / 42 - 0.928, abs=1e-4)  # 13, 13, 14 of 14
    assert pick(rows_of(tmp_path, planned=5), "r3l", "all")["verdict"] == "incomplete"
    assert pick(rows_of(tmp_path), "r3l", "easy")["verdict"] == "not comparable"


def test_webshop_is_compared_by_reward_which_is_what_the_paper_reports(tmp_path):
    for seed, reward in enumerate((0.65, 0.67, 0.66)):
        path = write_run(tmp_path, "r3l", seed, [1], [0], tier="paper", model="Qwen2.5-1.5B-Instruct", env="webshop")
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


def test_csv_is_whole_and_repeatable(three_seeds, tmp_path):
    one, two = tmp_path / "one.csv", tmp_path / "sub" / "two.csv"
    write_csv(rows_of(three_seeds), one)
    write_csv(rows_of(three_seeds), two)
    assert one.read_bytes() == two.read_bytes()
    with one.open(newline="") as file:
        read = list(csv.DictReader(file))
    assert len(read) == 9
    assert {row["task_set_sha256"] for row in read} == {"ab" * 32}


def test_csv_into_a_file_as_folder_is_a_typed_error(three_seeds, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunDirectoryError, match="--out"):
        write_csv(rows_of(three_seeds), tmp_path / "file" / "t.csv")


def test_terminal_table_names_tier_and_panel(three_seeds):
    console = Console(width=220, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(to_terminal(score_details.table(rows_of(three_seeds))))
    text = console.export_text()
    assert "not comparable with the paper (nano tier" in " ".join(text.split())
    assert "nano (test)" in text and "abababababab" in text and "0.750 ± 0.621" in text


def test_a_panels_caution_stands_under_the_table(three_seeds):
    for path in three_seeds.glob("*/*/*/*/seed*/evaluation.json"):
        content = json.loads(path.read_text())
        content["task_set"]["warning"] = "seen in training"
        rewrite(path, json.dumps(content))
    rows = rows_of(three_seeds)
    assert {row["warning"] for row in rows} == {"seen in training"}
    console = Console(width=200, record=True)
    console.print(to_terminal(score_details.table(rows)))
    assert "nano/test: seen in training" in " ".join(console.export_text().split())


def test_a_constant_answer_has_a_row_in_every_group_and_no_seeds(three_seeds):
    for path in three_seeds.glob("*/*/*/*/seed*/evaluation.json"):
        content = json.loads(path.read_text())
        content["task_set"]["constant_answer_baseline"] = {
            "answer": "infeasible",
            "success": {"all": 0.25, "easy": 0.0, "hard": 0.5},
        }
        rewrite(path, json.dumps(content))
    rows = [row for row in rows_of(three_seeds) if row["method"] == "constant_answer_baseline"]
    assert [(row["group"], row["mean"], row["low"], row["provenance"]) for row in rows] == [
        ("easy", 0.0, None, "constant_answer_baseline"),
        ("hard", 0.5, None, "constant_answer_baseline"),
        ("all", 0.25, None, "constant_answer_baseline"),
    ]
    write_run(three_seeds, "grpo", 0, [1, 0], [0, 0], env="webshop")
    console = Console(width=240, record=True)
    console.print(to_terminal(score_details.table(rows_of(three_seeds))))
    assert "alfworld: the answer is always infeasible" in " ".join(console.export_text().split())
    table = printed.table("T", rows_of(three_seeds), [], [])
    ours = table.section("nano tier, ours")
    texts = {name: cell.text for name, cell in ours["Constant answer"].items()}
    assert texts == {"method": "Constant answer", "ALFWorld": "0.250", "WebShop": "none"}
    assert "Constant answer" not in best(table, "nano tier, ours", "ALFWorld")
    assert "ALFWorld: the answer is always infeasible." in table.notes


def test_mixed_panels_are_refused(three_seeds):
    path = three_seeds / cell("alfworld", "r3l") / "seed2/evaluation.json"
    rewrite(path, path.read_text().replace("ab" * 32, "cd" * 32))
    with pytest.raises(DataError, match="one task set"):
        records.load(find_runs(three_seeds))


def test_torn_episodes_are_refused(three_seeds):
    path = three_seeds / cell("alfworld", "r3l") / "seed2/episodes.jsonl"
    path.write_text("\n".join(path.read_text().splitlines()[:-1]))
    with pytest.raises(DataError, match=r"episodes\.jsonl changed after the run was evaluated"):
        records.load(find_runs(three_seeds))


def test_nothing_found_says_what_to_run(tmp_path):
    with pytest.raises(DataError, match="make table1"):
        find_runs(tmp_path)


def test_renamed_directories_are_not_runs(three_seeds):
    folder = three_seeds / cell("alfworld", "r3l") / "seed2"
    folder.rename(folder.with_name("seed2.0123abcd"))
    assert len(find_runs(three_seeds)) == 8


def test_every_form_of_a_table_says_what_its_seeds_could_show(three_seeds):
    """Of each comparison in the long form, the terminal and HTML; as a range below the paper's layout."""
    rows = rows_of(three_seeds)
    (section,) = score_details.table([pick(rows, "r3l", "easy")]).sections
    assert section.rows[0]["would show"].text.startswith("0.816 (")
    alone = {row["smallest_difference"] for row in rows if row["group"] == "all" and row["spread"]}
    assert len(alone) == 2  # GRPO and R3L
    notes = printed.table("Scores", rows, [], []).notes
    (note,) = [note for note in notes if note.startswith("The smallest difference from zero_shot")]
    assert f"ALFWorld {min(alone):.3f} to {max(alone):.3f} (" in note
    assert "would show" in html_tables.scores(rows).names


def test_tables_say_under_which_preregistration_their_runs_were_made(three_seeds):
    assert not any("preregistration" in note for note in printed.table("Scores", rows_of(three_seeds), [], []).notes)
    for path in find_runs(three_seeds):
        manifest = json.loads((path.parent / "manifest.json").read_text())
        if "grpo" in path.parts:
            manifest["preregistration_sha256"] = "ab" * 32
        rewrite(path.parent / "manifest.json", json.dumps(manifest))
    rows = rows_of(three_seeds)
    assert {r["method"]: r["preregistration"] for r in rows} == {"zero_shot": None, "grpo": "ab" * 6, "r3l": None}
    notes = printed.table("Scores", rows, [], []).notes
    assert f"At the time of the runs, docs/preregistration.md was at sha256 {'ab' * 6} (1 of 3 rows)." in notes
    changed = [{**row, "preregistration": "ab, cd" if row["method"] == "grpo" else "cd"} for row in rows]
    notes = printed.table("Scores", changed, [], []).notes
    assert "At the time of the runs, docs/preregistration.md was at 2 versions, which r3l verify names." in notes
