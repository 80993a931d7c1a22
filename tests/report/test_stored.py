"""Our stored measurements: the committed table is what the committed runs give."""

import csv

from r3l.config import ROOT
from r3l.report import records, tables
from r3l.tracking import read_json, read_jsonl

STORED = ROOT / "results" / "stored"


def test_the_stored_table_regenerates_from_the_stored_runs(tmp_path):
    rows = tables.scores_table(
        records.load(records.find(STORED / "runs")), ["zero_shot", "grpo", "r3l"], "zero_shot", 3
    )
    tables.write_csv(rows, tmp_path / "table1.csv")
    assert (tmp_path / "table1.csv").read_text() == (STORED / "table1_nano.csv").read_text()


def test_stored_scores_are_those_of_the_stored_episodes():
    for path in records.find(STORED / "runs"):
        episodes = read_jsonl(path.parent / "episodes.jsonl")
        stored = read_json(path)["groups"]["all"]
        assert stored["episodes"] == len(episodes) == 200
        assert abs(stored["success"] - sum(e["success"] for e in episodes) / 200) < 1e-12


def test_the_stored_table_has_every_seed():
    with (STORED / "table1_nano.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {(r["method"], r["group"]) for r in rows} == {
        (m, g) for m in ("zero_shot", "grpo", "r3l") for g in ("easy", "hard", "all")
    }
    assert all(r["seeds_done"] == r["seeds_planned"] == "3" for r in rows)
