"""What tables need of a run's metrics: read once, kept for every run, read again after a change."""

import json

import numpy as np
import pytest
from report.runs import rewrite, write_run

from r3l.report.frame import all_tasks, common_seeds
from r3l.report.reading import read_runs
from r3l.report.updates import at_rate, early_success, training_of
from r3l.runs import step_metrics
from r3l.runs.run_paths import find_runs

STEPS = [
    {
        "step": 1,
        "rollouts": 12,
        "retry/count": 4,
        "stop/success": 5,
        "retry/success": 3,
        "tokens/generated": 700,
    },
    {"step": 2, "rollouts": 8, "stop/success": 6, "tokens/generated": 300, "seconds/train": 1.5},
]


def test_a_training_is_read_once_and_again_when_its_metrics_change(tmp_path, monkeypatch):
    run = write_run(tmp_path, "r3l", 0, [1], [0], steps=STEPS)
    read = training_of(run)
    assert read.success_U.tolist() == [(5 - 3) / (12 - 4), 6 / 8]
    assert (read.tokens_spent.tolist(), read.rollouts_spent.tolist()) == ([0, 700, 1000], [0, 12, 20])
    assert read.measured == {"seconds/train": 1.5}
    without = write_run(tmp_path, "r3l", 1, [1], [0], steps=[{"step": 1}, *STEPS[1:], {"step": 3}])
    assert np.array_equal(training_of(without).success_U, [np.nan, 6 / 8, np.nan], equal_nan=True)
    assert early_success(without) == 6 / 8

    reads = []
    read_columns = step_metrics.read_columns
    monkeypatch.setattr(
        step_metrics, "read_columns", lambda *asked: reads.append(asked) or read_columns(*asked)
    )
    assert training_of(run) is read and not reads
    rewrite(run.with_name("metrics.jsonl"), json.dumps(STEPS[0]) + "\n")
    assert training_of(run).tokens_spent.tolist() == [0, 700] and reads == [(run.parent, step_metrics.KEPT)]


def test_a_metric_of_no_set_is_read_by_itself(tmp_path):
    steps = [{"step": 1, "kl": 0.5}, {"step": 2}]
    columns = training_of(write_run(tmp_path, "r3l", 0, [1], [0], steps=steps)).columns
    assert columns.updates == 2 and np.array_equal(columns["kl"], [0.5, np.nan], equal_nan=True)


def test_a_seed_that_was_trained_under_two_names_counts_once_at_its_rate(tmp_path):
    """Seed 0 solves all tasks under the method's own name; the variant that names the same rate has seed 1 too."""
    write_run(tmp_path, "r3l", 0, [1, 1], [1, 1])
    for seed in range(2):
        write_run(tmp_path, "r3l@train.lr=0.0003", seed, [1, 1], [0, 0])
        write_run(tmp_path, "grpo", seed, [1, 1], [0, 0])
    runs = read_runs(find_runs(tmp_path))
    ours = at_rate(runs, "r3l", 3e-4)
    assert [*zip(ours.method, ours.seed, ours.group, strict=True)] == [
        *(("r3l", 0, group) for group in ("easy", "hard", "all")),
        *(("r3l@train.lr=0.0003", 1, group) for group in ("easy", "hard", "all")),
    ]
    of_variants = all_tasks(runs[runs.method != "grpo"])
    for pair in ((of_variants, all_tasks(ours)), (all_tasks(ours), of_variants)):
        with pytest.raises(ValueError, match="seed 0 twice"):
            common_seeds(*pair)
