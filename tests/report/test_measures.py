"""Tables of what training counted, by hand."""

from __future__ import annotations

import json

import pytest
from report.runs import rewrite, write_run

from r3l.report import measures, published
from r3l.report.budget import budget_rows, budget_table
from r3l.report.full_table import full_table
from r3l.report.reading import read_runs, token_counts
from r3l.report.scores import score_rows
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


def test_sampled_scored_and_trained_tokens_are_told_apart(tmp_path):
    """The three kinds of each method; what was not recorded is called so, never 0."""
    spent = {"tokens/generated": 1000, "tokens/trained": 400, "tokens/forwarded": 700, "sampling_rounds": 10}
    teacher, kl = {"teacher": "live"}, {"kl": "k3", "kl_coef": 0.01}
    runs = {  # settings, counters, what is scored
        "grpo": ({}, spent, 0),  # no context is scored
        "reflect_grpo": ({"rescore_distilled": True}, spent, 0),  # by the pass that trains
        "sdar": (teacher, spent | {"tokens/scored": 300}, 300),
        "rlsd": (teacher, spent, None),  # it was not counted
        "r3l_kl": (kl, spent, 700),  # the base checkpoint reads each row of the updates once
        "agentopsd": (teacher | kl, spent | {"tokens/scored": 300}, 1000),
        "r3l": (kl, {k: n for k, n in spent.items() if k != "tokens/forwarded"}, None),
    }
    for method, (settings, counters, _) in runs.items():
        for seed in range(2):
            write_run(tmp_path, method, seed, [1, 1], [1, 0], settings=settings, budget=counters)
    every = read_runs(find_runs(tmp_path))
    table = budget_rows(every)
    found = {row["method"]: row for row in table.to_dict("records")}
    assert {method: row["scored_tokens"] for method, row in found.items()} == {
        method: scored for method, (*_, scored) in runs.items()
    }
    assert {(row["generated_tokens"], row["trained_tokens"], row["success"]) for row in found.values()} == {
        (1000, 400, 0.75)
    }
    printed = {row["method"].title: row for row in budget_table(table).sections[0].rows}
    assert [printed[m]["scored"].text for m in ("grpo", "sdar", "rlsd")] == ["0", "300", "not recorded"]
    assert [printed["grpo"][name].text for name in ("success", "sampled", "trained")] == [
        "0.750",
        "1,000",
        "400",
    ]
    # The same beside each score; a method without a run has none.
    scores = score_rows(every, [*runs, "raft"], "grpo", 2)
    assert dict(zip(scores.method, scores.scored_tokens, strict=True)) == {
        **{method: scored for method, (*_, scored) in runs.items()},
        "raft": None,
    }
    assert "raft" not in {row["method"].title for row in full_table(scores).sections[0].rows}
    printed = {row["method"].title: row for row in full_table(scores).sections[0].rows}
    for method, scored in {"grpo": "0", "sdar": "300", "rlsd": "not recorded", "agentopsd": "1.0k"}.items():
        row = printed[method]
        assert [row[name].text for name in ("sampled", "scored", "trained")] == ["1.0k", scored, "400"]
    # By task: ten rounds of eight tasks.
    names = ["sampled_tokens_per_task", "scored_tokens_per_task", "trained_tokens_per_task"]
    by_task = rows(tmp_path, names, methods=("sdar", "rlsd"))
    assert [by_task["sdar", name]["mean"] for name in names] == [12.5, 3.75, 5.0]
    assert by_task["rlsd", names[1]]["mean"] is None
    assert by_task["rlsd", names[1]]["verdict_reason"] == "not recorded"


@pytest.mark.parametrize(
    ("engine", "interval", "scored"), [("local", 1, 0), ("local", 5, None), ("trinity", 1, None)]
)
def test_distilled_retries_are_scored_apart_only_under_other_weights(engine, interval, scored):
    run = {
        "engine": engine,
        "train": {"sync_interval": interval},
        "method_settings": {"rescore_distilled": True},
    }
    assert token_counts({}, run) == {
        "generated_tokens": None,
        "scored_tokens": scored,
        "trained_tokens": None,
    }
    assert token_counts({"tokens/scored": 9}, run)["scored_tokens"] == 9


def test_the_papers_tier_is_held_against_the_paper_where_both_mean_the_same(tmp_path):
    budget = {
        "retry/count": 100,
        "pivot/oracle_near": 6,
        "reflection_quality/accurate": 7,
        "reflection_quality/wrong": 3,
    }
    for seed, improved in enumerate((64, 65, 64.5)):
        a_run(tmp_path, seed, budget | {"retry/improved": improved}, **PAPER)
    reference = published.Reference(published.load(["retry_improvement", "pivot"]))
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
