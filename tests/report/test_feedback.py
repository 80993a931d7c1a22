"""Every score names who wrote the feedback; a comparison of methods with different teachers says so."""

import json

import pytest
from report.runs import rewrite, write_run

from r3l.report import tables
from r3l.report.budget import budget_rows
from r3l.report.compare import compare_methods
from r3l.report.reading import read_runs
from r3l.report.scores import score_rows
from r3l.runs.run_paths import find_runs
from r3l.workflow import plan

WROTE = {  # method: its settings, what training counted
    "grpo": ({}, {}),
    "r3l": ({"feedback": "self"}, {"reflection/valid": 8}),
    "rltf_fm": ({"feedback": "environment"}, {"critique/by_environment": 20}),
    "rltf_sd": ({"feedback": "environment"}, {"critique/by_environment": 15, "critique/by_model": 5}),
    "rltf_grpo": ({"feedback": "judge"}, {"critique/by_judge": 9, "tokens/judge": 70}),
}
SHOWN = {
    "grpo": None,
    "r3l": "self",
    "rltf_fm": "environment",
    "rltf_sd": "environment, 25% self",
    "rltf_grpo": "judge big",
}


@pytest.fixture
def runs(tmp_path):
    for method, (settings, counts) in WROTE.items():
        path = write_run(tmp_path, method, 0, [1], [0], settings=settings)
        manifest = json.loads((path.parent / "manifest.json").read_text())
        manifest["run"]["judge"] = {"model": "big"}
        rewrite(path.parent / "manifest.json", json.dumps(manifest))
        result = json.loads((path.parent / "result.json").read_text())
        rewrite(path.parent / "result.json", json.dumps(result | {"budget": result["budget"] | counts}))
    return read_runs(find_runs(tmp_path))


def test_every_table_has_the_column(runs):
    for rows in (score_rows(runs, list(WROTE), "grpo", 1), budget_rows(runs)):
        assert dict(zip(rows.method, rows.feedback, strict=True)) == SHOWN
    for name in ("table1", "learning"):
        built = tables.build(plan.tables()[name], runs, list(WROTE), 1, "nano")
        assert dict(zip(built.rows.method, built.rows.feedback, strict=True)) == SHOWN
        section = next(section for section in built.printed.sections if "ours" in section.title)
        assert [row["feedback"].text for row in section.rows] == [label or "none" for label in SHOWN.values()]


def test_a_table_without_such_methods_has_no_column(runs):
    built = tables.build(plan.tables()["table1"], runs[runs.method == "grpo"], ["grpo"], 1, "nano")
    assert "feedback" not in built.printed.names


@pytest.mark.parametrize(
    ("method", "other", "warnings"),
    [
        ("r3l", "grpo", []),  # the method's own way of learning, with no teacher
        (
            "r3l",
            "rltf_fm",
            [
                "feedback in training was written by the model itself here and written by the environment's "
                "critic there"
            ],
        ),
        ("rltf_grpo", "grpo", ["feedback in training was written by judge big here and not read there"]),
    ],
)
def test_compare_names_another_teacher_as_a_condition(runs, method, other, warnings):
    (row,) = compare_methods(runs, method, [other])
    assert [text for text in row.warnings if text.startswith("feedback")] == warnings
