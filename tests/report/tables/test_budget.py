"""Budget rows from result files, by hand."""

import json

import pytest
from report.runs import rewrite, write_run

from r3l.report import records
from r3l.report.tables import budget
from r3l.runs.places import find_runs


def test_budget_by_hand(tmp_path):
    for method, spent in (
        ("grpo", {"tokens/generated": 100, "tokens/rollout": 100, "tokens/trained": 80, "rollouts": 8}),
        ("r3l", {"tokens/generated": 150, "tokens/rollout": 60, "tokens/reflection": 50, "tokens/retry": 40}),
    ):
        path = write_run(tmp_path, method, 0, [1], [0])
        result = path.parent / "result.json"
        content = json.loads(result.read_text())
        more = {"retry/count": 4, "retry/success": 1, "pivot/turns": 8, "pivot/base_turns": 20, "trained/sft": 10}
        content["budget"] = spent | (more | {"tokens/trained": 40} if method == "r3l" else {})
        rewrite(result, json.dumps(content))
    budget_rows = budget.budget_rows(records.load(find_runs(tmp_path)))
    rows = {row["method"]: row for row in budget_rows}
    assert (rows["grpo"]["relative_generated"], rows["r3l"]["relative_generated"]) == (1.0, 1.5)
    assert rows["r3l"]["retry_success"] == 0.25 and rows["r3l"]["pivot_turn"] == 2.0
    assert rows["r3l"]["pivot_position"] == pytest.approx(0.4) and rows["r3l"]["imitated"] == 0.25
    assert rows["grpo"]["retry_success"] is None and rows["grpo"]["reflection_tokens"] == 0
    cells = {row["method"].text: row for row in budget.table(budget_rows).sections[0].rows}["R3L"]
    assert (cells["reflect"].text, cells["x"].text, cells["imitated"].text) == ("50", "1.5", "0.25")
