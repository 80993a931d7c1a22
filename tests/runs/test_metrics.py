"""Every metric is declared once: what steps report, what is counted in the code, the page of the docs."""

from dataclasses import replace

import pytest
from conftest import make_trajectory

from r3l.config import build_method, resolve
from r3l.core.batching import rows_of
from r3l.core.trajectory import Group
from r3l.files.json_files import read_jsonl
from r3l.files.paths import STORED
from r3l.local.engine import train
from r3l.runs.metrics import METRICS_BY_NAME, TIME, TOTAL, declared, is_total
from r3l.runs.step_metrics import totals
from r3l.runs.steps import group_metrics, row_metrics

SMALL = ["train.steps=1", "train.tasks_per_step=2", "workers=0", "threads=1"]
FAMILIES = {  # methods that report different metrics: what each is run with
    "r3l": ["method_settings.group_size=4"],
    "grpo": ["method_settings.group_size=2", "method_settings.kl=k3", "method_settings.kl_coef=0.1"],
    "raft": ["method_settings.group_size=2", "train.kl_metric_every=1"],
    "rltf_fm": ["method_settings.group_size=2"],
}


@pytest.mark.parametrize("method", FAMILIES)
def test_a_step_reports_nothing_that_is_not_declared(tmp_path, method):
    train(resolve("nano", "math", method, 0, overrides=[*SMALL, *FAMILIES[method]]), tmp_path)
    (row,) = read_jsonl(tmp_path / "metrics.jsonl")
    assert [name for name in row if declared(name) is None] == []
    times = [value for name, value in row.items() if name.startswith("seconds/")]
    assert times and times == [round(value, 4) for value in times]


def test_counts_are_added_up_and_means_and_times_are_not():
    step = {
        "step": 1,
        "rollouts": 4,
        "stop/success": 1,
        "train/success": 0.25,
        "seconds/collect": 3.0,
        "loss": 1.0,
    }
    assert totals([step, step]) == {"rollouts": 8, "stop/success": 2}
    assert {m.name.partition("/")[0] for m in METRICS_BY_NAME.values() if m.kind is TIME} == {"seconds"}
    assert METRICS_BY_NAME["retry/gain"].kind is TOTAL
    assert declared("train/success/easy") is METRICS_BY_NAME["train/success/*"]
    assert declared("train/sucess") is None and not is_total("my_own")


def test_stored_runs_have_declared_metrics():
    paths = sorted(STORED.glob("*/*/*/*/seed0/metrics.json.xz"))
    names = {name for path in paths for row in read_jsonl(path) for name in row}
    assert paths and sorted(name for name in names if declared(name) is None) == []


def test_reflections_that_are_all_the_same_text_show():
    """Texts of the one turn are "do 0": of three reflections of one turn two are equal once one is
    changed."""
    reflections = [make_trajectory(1, kind="reflection") for _ in range(3)]
    assert group_metrics([], reflections)["reflection/distinct"] == 1 / 3
    reflections[0].turns[0] = replace(reflections[0].turns[0], response="other")
    assert group_metrics([], reflections)["reflection/distinct"] == 2 / 3
    assert "reflection/distinct" not in group_metrics([], [make_trajectory(1)])


@pytest.mark.parametrize("samples", ["trajectory", "turn"])
@pytest.mark.parametrize(("first", "pushed_down"), [(0, 4), (2, 0)])
def test_tokens_before_the_pivot_that_are_pushed_down(samples, first, pushed_down):
    """Turns of two tokens. An attempt of four fails, its retry from turn 2 succeeds; another attempt has no
    retry. Of two turns each the prefixes have 4 + 4 tokens; those of the attempt are pushed down where they
    train."""
    attempt, retry = make_trajectory(4, 0.0, first=first), make_trajectory(5, 1.0, "distilled", first=first)
    retry.restart_turn = 2
    other = replace(make_trajectory(3, 0.0), member=1)
    method = build_method(resolve("nano", "math", "r3l", 0))
    counts = row_metrics(rows_of(method, [Group(attempt.task, [attempt, retry, other])], samples))
    assert (counts["prefix/tokens"], counts["prefix/pushed_down"]) == (8, pushed_down)
    assert "prefix/tokens" not in row_metrics(
        rows_of(method, [Group(attempt.task, [attempt, other])], samples)
    )


@pytest.mark.parametrize("start", [0, 4])
def test_a_reflection_that_trains_as_a_policy_row_moves_no_pivot(start):
    """As with ``sft_mode: reward1_singleton``: its dialog begins at turn 0 under full prompts, after the
    attempt's 4 turns under compact ones."""
    attempt, retry = make_trajectory(4, 0.0), make_trajectory(5, 1.0, "distilled", first=2)
    retry.restart_turn = 2
    reflection = make_trajectory(start + 1, kind="reflection", first=start)
    reflection.restart_turn = start
    played = Group(attempt.task, [attempt, retry])
    method = build_method(resolve("nano", "math", "r3l", 0))
    counted = row_metrics(rows_of(method, [played, Group(attempt.task, [reflection], returns=(1.0,))]))
    expected = row_metrics(rows_of(method, [played]))
    for name in ("prefix/tokens", "prefix/pushed_down"):
        assert counted[name] == expected[name] > 0
    alone = Group(attempt.task, [reflection], returns=(1.0,))
    assert "prefix/tokens" not in row_metrics(rows_of(method, [alone]))
