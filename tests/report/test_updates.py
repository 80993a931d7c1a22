"""What tables need of a run's metrics: read once, kept for every run, read again after a change."""

import json

from report.runs import rewrite, write_run

from r3l.report import updates
from r3l.report.updates import training_of
from r3l.runs import metrics

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
    assert (read.tokens_U.tolist(), read.rollouts_U.tolist()) == ([700.0, 300.0], [12.0, 8.0])
    assert read.measured == {"seconds/train": 1.5}

    reads = []
    monkeypatch.setattr(metrics, "read_metrics", lambda run_dir: reads.append(run_dir) or STEPS[:1])
    updates._updates.cache_clear()  # as after the metrics of a thousand other runs
    assert training_of(run) is read and not reads
    rewrite(run.with_name("metrics.jsonl"), json.dumps(STEPS[0]) + "\n")
    assert training_of(run).tokens_U.tolist() == [700.0] and reads == [run.parent]
