"""Tables of what training counted, by hand."""

from __future__ import annotations

import json

import pytest
from report.runs import rewrite, write_run

from r3l.report import measures, published
from r3l.report.budget import budget_rows, budget_table
from r3l.report.frame import read_runs
from r3l.report.table import as_stored
from r3l.runs.run_paths import find_runs

NONE = published.Reference()
PAPER = {"tier": "paper", "model": "Qwen2.5-1.5B-Instruct"}


def a_run(root, seed, budget, method="r3l", tasks=4, **place):
    """A run of ten steps with ``tasks`` tasks each; exploring took ``step`` seconds."""
    path = write_run(root, method, seed, [1], [0], **place)
    result, manifest = (
        json.loads((path.parent / f"{name}.json").read_text()) for name in ("result", "manifest")
    )
    manifest["run"]["train"]["tasks_per_step"] = tasks
    for name, content in (("result", result | {"budget": budget}), ("manifest", manifest)):
        rewrite(path.parent / f"{name}.json", json.dumps(content))
    step = {"train/success": 0, "seconds/train": 2, "tokens/generated": seed}
    lines = [json.dumps(step | {"step": k, "seconds/collect": k}) for k in range(1, 11)]
    rewrite(path.parent / "metrics.jsonl", "\n".join(lines) + "\n")
    return path


def rows(root, names, methods=("r3l",), planned=2, reference=NONE):
    made = measures.measure_rows(read_runs(find_runs(root)), methods, names, planned, "T", reference)
    return {(row["method"], row["measure"]): row for row in as_stored(made, measures.COLUMNS)}


def test_rates_are_of_each_run_and_then_averaged(tmp_path):
    a_run(tmp_path, 0, {"retry/count": 10, "retry/improved": 2})
    a_run(tmp_path, 1, {"retry/count": 100, "retry/improved": 40})
    a_run(tmp_path, 2, {"retry/count": 10, "retry/improved": 3})
    row = rows(tmp_path, ["retry_improved"])["r3l", "retry_improved"]
    assert row["mean"] == pytest.approx(0.3)  # of 0.2, 0.4 and 0.3, not 45/120
    assert row["high"] == pytest.approx(0.3 + 4.3027 * 0.1 / 3**0.5, abs=1e-3)  # t of two degrees of freedom
    assert (row["seeds_done"], row["seeds_planned"], row["verdict"]) == (3, 2, "not comparable")


def test_cost_is_per_training_task_and_per_step(tmp_path):
    budget = {"env_steps": 800, "tokens/trained": 4000, "sampling_rounds": 10}  # ten rounds of four tasks
    a_run(tmp_path, 0, budget)
    names = ["turns_per_task", "trained_tokens_per_task", "rollout_seconds", "train_seconds"]
    by_measure = rows(tmp_path, names)
    assert [by_measure["r3l", name]["mean"] for name in names] == [20.0, 100.0, 5.5, 2.0]
    assert [by_measure["r3l", name]["unit"] for name in names] == ["turns", "tokens", "s", "s"]


def test_the_papers_tier_is_held_against_the_paper_where_both_mean_the_same(tmp_path):
    budget = {
        "retry/count": 100,
        "pivot/oracle_near": 6,
        "reflection_quality/accurate": 7,
        "reflection_quality/wrong": 3,
    }
    for seed, improved in enumerate((64, 65, 64.5)):
        a_run(tmp_path, seed, budget | {"retry/improved": improved}, **PAPER)
    reference = published.Reference([*published.of_table("retry_improvement"), *published.of_table("pivot")])
    by_measure = rows(
        tmp_path, ["retry_improved", "pivot_oracle_agreement", "diagnosis_accurate"], reference=reference
    )
    improved = by_measure["r3l", "retry_improved"]
    assert (improved["paper"], improved["paper_difference"], improved["verdict"]) == (
        0.647,
        -0.002,
        "within interval",
    )
    assert by_measure["r3l", "pivot_oracle_agreement"]["verdict"] == "not comparable"  # published by step
    assert (
        by_measure["r3l", "pivot_oracle_agreement"]["mean"] == 0.6
        and by_measure["r3l", "diagnosis_accurate"]["mean"] == 0.7
    )


def test_budget_by_hand(tmp_path):
    for method, spent in (
        ("grpo", {"tokens/generated": 100, "tokens/rollout": 100, "tokens/trained": 80, "rollouts": 8}),
        ("r3l", {"tokens/generated": 150, "tokens/rollout": 60, "tokens/reflection": 50, "tokens/retry": 40}),
    ):
        path = write_run(tmp_path, method, 0, [1], [0])
        result = path.parent / "result.json"
        content = json.loads(result.read_text())
        more = {
            "retry/count": 4,
            "retry/success": 1,
            "pivot/turns": 8,
            "pivot/base_turns": 20,
            "trained/sft": 10,
        }
        content["budget"] = spent | (more | {"tokens/trained": 40} if method == "r3l" else {})
        rewrite(result, json.dumps(content))
    spent = budget_rows(read_runs(find_runs(tmp_path)))
    rows = {row["method"]: row for row in spent.to_dict("records")}
    assert (rows["grpo"]["relative_generated"], rows["r3l"]["relative_generated"]) == (1.0, 1.5)
    assert rows["r3l"]["retry_success"] == 0.25 and rows["r3l"]["pivot_turn"] == 2.0
    assert rows["r3l"]["pivot_position"] == pytest.approx(0.4) and rows["r3l"]["imitated"] == 0.25
    assert rows["grpo"]["retry_success"] is None and rows["grpo"]["reflection_tokens"] == 0
    cells = {row["method"].text: row for row in budget_table(spent).sections[0].rows}["R3L"]
    assert (cells["reflect"].text, cells["x"].text, cells["imitated"].text) == ("50", "1.5", "0.25")
