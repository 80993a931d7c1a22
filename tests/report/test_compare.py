"""Comparing with stored runs: numbers worked out by hand, from files as runs leave them."""

import io
import json

import pytest
from report.runs import rewrite, write_run
from rich.console import Console

from r3l.core.errors import DataError
from r3l.report.compare import compare_methods, comparison_table
from r3l.report.reading import read_runs
from r3l.runs.run_paths import find_runs


def typed(root, method, against, group="all"):
    return compare_methods(read_runs(find_runs(root)), method, against, group)


def compared(root, method, against, group="all"):
    return [row.flat() for row in typed(root, method, against, group)]


def test_differences_are_paired_by_seed(tmp_path):
    for seed, won in enumerate(([1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1])):
        write_run(tmp_path, "mine", seed, won[:2], won[2:])
        write_run(tmp_path, "grpo", seed, [1, 0], [0, 0])
    write_run(tmp_path, "grpo", 3, [1, 1], [1, 1])  # no partner: left out
    (row,) = compared(tmp_path, "mine", ["grpo"])
    assert (row["pairs"], row["ours_mean"], row["theirs_mean"], row["difference_mean"]) == (
        3,
        0.75,
        0.25,
        0.5,
    )
    # seed differences 0.25, 0.5, 0.75: s = 0.25, t(0.975, 2) = 4.30265, half = t s / sqrt(3)
    assert row["difference_high"] - 0.5 == pytest.approx(4.30265 * 0.25 / 3**0.5, abs=1e-5)
    assert row["probability_of_improvement"] == 1.0
    # t = 0.5 / (0.25 / sqrt(3)) = 3.4641 with 2 degrees of freedom: p = 1 - t / sqrt(2 + t^2)
    assert row["p_value"] == pytest.approx(1 - 3.4641 / (2 + 12) ** 0.5, abs=1e-4)
    assert row["verdict"] == "inconclusive"
    # three seeds show 3.26404 standard deviations; the only comparison of the call needs no correction
    assert (row["pairs"], row["spread"]) == (3, pytest.approx(0.25))
    assert row["mde"] == row["mde_holm"] == pytest.approx(3.26404 * 0.25, abs=1e-5)
    assert row["budget_rollouts"] == 1.0


def test_p_values_are_corrected_over_the_call_and_decide_the_verdict(tmp_path):
    for seed in range(4):
        write_run(tmp_path, "mine", seed, [1, 1, 1, seed % 2], [1, 1, 1, 1])
        write_run(tmp_path, "grpo", seed, [0, 0, 0, 0], [0, 0, 0, seed % 2])
        write_run(tmp_path, "r3l", seed, [1, 1, 1, seed // 2], [1, 1, 1, 1])
    better, equal = compared(tmp_path, "mine", ["grpo", "r3l"])
    assert better["p_holm"] == pytest.approx(min(1, 2 * better["p_value"]))
    assert (better["verdict"], equal["verdict"]) == ("ahead", "inconclusive")
    assert compared(tmp_path, "grpo", ["mine"])[0]["verdict"] == "behind"
    # four seeds: 2.12795 standard deviations alone, 2.66 at 2.5 %
    assert equal["mde"] == pytest.approx(2.12795 * equal["spread"], rel=1e-5)
    assert equal["mde_holm"] > 1.2 * equal["mde"]


def test_no_word_is_broken_however_wide_the_terminal_is(tmp_path):
    for seed in range(5):
        write_run(tmp_path, "mine", seed, [1, seed % 2], [1, 0])
        write_run(tmp_path, "grpo", seed, [1, seed // 2 % 2], [0, 1])
    table = comparison_table(typed(tmp_path, "mine", ["grpo"]))
    for width in range(80, 131):
        console = Console(width=width, record=True, file=io.StringIO())
        console.print(table)
        assert "inconclusive" in console.export_text(), width


def test_one_group_of_tasks_can_be_compared_alone(tmp_path):
    for seed in range(2):
        write_run(tmp_path, "mine", seed, [1, 1], [1, seed, 0, 0])
        write_run(tmp_path, "grpo", seed, [1, 1], [0, 0, 0, 0])
    (hard,) = compared(tmp_path, "mine", ["grpo"], "hard")
    assert (hard["group"], hard["ours_mean"], hard["theirs_mean"], hard["difference_mean"]) == (
        "hard",
        0.375,
        0,
        0.375,
    )
    assert hard["difference_high"] is None  # two seeds have no interval
    assert compared(tmp_path, "mine", ["grpo"], "easy")[0]["difference_mean"] == 0
    with pytest.raises(DataError, match="--group is 'harder'; the tasks of alfworld are easy, hard, all"):
        compared(tmp_path, "mine", ["grpo"], "harder")


def test_an_environment_without_the_group_is_left_out_with_a_warning(tmp_path, caplog):
    for method in ("mine", "grpo"):
        write_run(tmp_path, method, 0, [1, 1], [1, 0])
        write_run(tmp_path, method, 0, [1, 1], [], env="webshop")
    (row,) = compared(tmp_path, "mine", ["grpo"], "hard")
    assert row["env"] == "alfworld"
    assert [record.message for record in caplog.records] == ["without hard tasks, so left out: webshop"]


def test_too_few_seeds_are_incomplete_and_a_missing_opponent_is_shown(tmp_path):
    write_run(tmp_path, "mine", 0, [1, 1], [1])
    write_run(tmp_path, "grpo", 0, [0, 1], [1])
    write_run(tmp_path, "r3l", 5, [0, 1], [1])
    grpo, r3l = compared(tmp_path, "mine", ["grpo", "r3l"])
    assert (grpo["verdict"], r3l["verdict"]) == ("incomplete (1 common seed)", "incomplete (0 common seeds)")
    assert r3l["theirs_mean"] is None
    comparison_table(typed(tmp_path, "mine", ["grpo", "r3l"]))
    with pytest.raises(DataError, match="no evaluated run of 'yours'"):
        compared(tmp_path, "yours", ["grpo"])


def test_settings_that_differ_beside_the_method_are_named(tmp_path):
    mine, grpo = (write_run(tmp_path, name, 0, [1], [1]) for name in ("mine", "grpo"))
    manifest = json.loads((grpo.parent / "manifest.json").read_text())
    manifest["run"]["train"]["steps"] = 5
    manifest["run"]["prompts"] = "full"
    manifest["run"]["lora"] = {"rank": 8}
    rewrite(grpo.parent / "manifest.json", json.dumps(manifest))
    (row,) = compared(tmp_path, "mine", ["grpo"])
    assert row["warnings"] == [
        "lora.rank is None here and 8 there",
        "prompts is 'compact' here and 'full' there",
        "train.steps is 10 here and 5 there",
    ]


def test_settings_that_differ_in_a_later_seed_are_named_once(tmp_path):
    """Two of three seeds of GRPO had five updates, one of them also another prompt."""
    for seed in range(3):
        write_run(tmp_path, "mine", seed, [1], [1])
        manifest = write_run(tmp_path, "grpo", seed, [1], [1]).parent / "manifest.json"
        content = json.loads(manifest.read_text())
        content["run"]["train"]["steps"] = 5 if seed else 10
        content["run"]["prompts"] = "full" if seed == 2 else "compact"
        rewrite(manifest, json.dumps(content))
    (row,) = compared(tmp_path, "mine", ["grpo"])
    assert row["warnings"] == [
        "train.steps is 10 here and 5 there",
        "prompts is 'compact' here and 'full' there",
    ]


def test_runs_that_played_other_tasks_are_no_pair(tmp_path, caplog):
    """`-n 4` and the whole task set: the second method's score is kept, a difference of the two does
    not."""
    paths = [
        write_run(tmp_path, "grpo", 0, [1, 1, 0, 0], [0, 0]),
        write_run(tmp_path, "r3l", 0, [1, 1], [1, 0]),
    ]
    loaded = read_runs(paths)
    assert compare_methods(loaded, "r3l", ["grpo"])[0].difference is None
    assert "they played other tasks" in caplog.text
    with pytest.raises(DataError, match="seeds of one method"):
        read_runs([*paths, write_run(tmp_path, "r3l", 1, [1, 1], [1, 0, 1])])


def test_an_evaluation_of_other_episodes_than_those_beside_it_is_refused(tmp_path):
    path = write_run(tmp_path, "grpo", 0, [1, 1, 0, 0], [0, 0])
    rewrite(path.with_name("episodes.jsonl"), "")
    with pytest.raises(DataError, match="does not belong to episodes.* next to it"):
        read_runs([path])
