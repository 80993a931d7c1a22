"""Runs that are older than a correction: tables name them, fingerprints of others stay."""

import json

import pytest
from report.runs import rewrite, write_run

from r3l.config import resolve
from r3l.config.corrections import CORRECTIONS, corrections_of
from r3l.report import measures, records, scores
from r3l.report.budget import budget_rows
from r3l.report.compare import compare
from r3l.report.layout import printed
from r3l.runs.manifest import manifest
from r3l.runs.places import find_runs

LONE = "rltf_lone_second_attempt"


@pytest.fixture
def runs(tmp_path):
    """GRPO, and RLTF-SD from before the correction (seed 0) and after it (seed 1)."""
    for seed, corrections in ((0, None), (1, [LONE])):
        write_run(tmp_path, "grpo", seed, [1], [0])
        path = write_run(tmp_path, "rltf_sd", seed, [1], [1]).parent / "manifest.json"
        content = json.loads(path.read_text())
        content["run"]["method_code"] = "r3l.baselines.rltf:RLTF"
        rewrite(path, json.dumps(content if corrections is None else content | {"corrections": corrections}))
    return records.load(find_runs(tmp_path))


def test_tables_name_runs_that_are_older_than_a_correction(runs):
    assert [run.outdated for run in runs if run.method == "rltf_sd"] == [[LONE], []]
    reference = scores.main_results()
    rows = scores.score_rows(runs, ["grpo", "rltf_sd"], "grpo", 2)
    counted = measures.measure_rows(runs, ["grpo", "rltf_sd"], ["train_success"], 2, "T", reference)
    for table in (rows, counted, budget_rows(runs)):
        assert {(row.method, row.outdated) for row in table} == {("grpo", None), ("rltf_sd", LONE)}
    notes = printed("T", rows, [], []).notes
    assert [n for n in notes if "Outdated" in n and n.endswith("): rltf_sd on ALFWorld.") and "grpo" not in n], notes
    (row,) = compare(runs, "rltf_sd", ["grpo"])
    assert any("rltf_sd seed 0 is outdated" in warning for warning in row.warnings)


def test_a_correction_changes_the_fingerprint_of_the_runs_that_it_concerns_alone():
    concerned, other = (resolve("nano", "alfworld", method, 0) for method in ("rltf_fm", "grpo"))
    assert concerned.fingerprint() == concerned.fingerprint([LONE]) != concerned.fingerprint([])
    assert other.fingerprint() == other.fingerprint([])
    assert manifest(concerned)["corrections"] == [LONE] and manifest(other)["corrections"] == []


def test_names_of_corrections_are_unique():
    assert len({correction.name for correction in CORRECTIONS}) == len(CORRECTIONS)
    assert corrections_of(resolve("nano", "alfworld", "r3l", 0).model_dump()) == []
