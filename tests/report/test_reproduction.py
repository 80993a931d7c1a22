"""A fresh run compared with the stored one: equal, close, apart, another, none."""

import shutil
from pathlib import Path

import pytest
from report.runs import write_run
from start_models import cell

from r3l.evaluation.verification import sign
from r3l.files.json_files import read_json, read_jsonl, rewrite_jsonl
from r3l.files.writing import write_json_atomic
from r3l.report.reproduction import lines, reproduction, sentence

RUN = f"{cell('alfworld', 'grpo')}/seed0"


@pytest.fixture
def fresh(tmp_path):
    """A run that solved 59 of 200, as if it had been made here, and a store that has it."""
    write_run(tmp_path / "stored", "grpo", 0, [1] * 59 + [0] * 41, [0] * 100)
    return Path(shutil.copytree(tmp_path / "stored" / RUN, tmp_path / "results" / RUN))


def twin(fresh):
    """The stored run."""
    return fresh.parents[5] / "stored" / RUN


def of_one(fresh):
    (row,) = reproduction([fresh / "evaluation.json"], fresh.parents[5] / "stored")
    return row


def change(path, **values):
    write_json_atomic(path, read_json(path) | values)
    sign(path.parent)


def test_the_same_episodes_are_identical_whatever_fields_are_new(fresh):
    rewrite_jsonl(fresh / "episodes.jsonl", [e | {"new": 1} for e in read_jsonl(fresh / "episodes.jsonl")])
    sign(fresh)
    row = of_one(fresh)
    assert row["verdict"] == "identical"
    assert lines([row]) == [f"{RUN}: identical to the stored run in all 200 episodes"]


def test_a_run_is_known_by_what_it_is_wherever_it_lies(fresh):
    """`r3l evaluate --out FOLDER` puts one anywhere; a folder near the root once stopped it with an
    IndexError."""
    elsewhere = Path(shutil.move(fresh, fresh.parents[5] / "mine"))
    stored = elsewhere.with_name("stored")
    (row,) = reproduction([elsewhere / "evaluation.json"], stored)
    assert sentence(row) == "identical to the stored run in all 200 episodes"


def test_other_episodes_are_counted_and_the_score_is_held_against_the_interval(fresh):
    """59 of 200 solved: Wilson's interval is 0.236 to 0.362 by hand. One more solved is inside, 20 more are
    not."""
    manifest = read_json(fresh / "manifest.json")
    versions = manifest["versions"] | {"numba": "1"}
    change(fresh / "manifest.json", versions=versions, hardware=manifest["hardware"] | {"vectors": "AVX2"})
    for more, verdict in ((1, "within the interval"), (20, "outside the interval")):
        solve(fresh, more)
        row = of_one(fresh)
        assert row["verdict"] == verdict and row["equal"] == 200 - more
        assert row["interval"] == [pytest.approx(0.236, abs=5e-4), pytest.approx(0.362, abs=5e-4)]
        (line,) = lines([row])
        assert f"{200 - more} of 200 episodes equal" in line and "numba 1, stored " in line
        assert "vectors AVX2, stored not recorded" in line


def test_the_interval_is_over_tasks_where_each_was_attempted_several_times(tmp_path):
    """Wilson's of 30 of 100 tasks is 0.219 to 0.396, of 60 of 200 episodes 0.241 to 0.367: 0.38 tells."""
    for name, solved in (("stored", 60), ("results", 76)):
        write_run(tmp_path / name, "grpo", 0, [1] * solved, [0] * (200 - solved), attempts=2)
    row = of_one(tmp_path / "results" / RUN)
    assert row["interval"] == [pytest.approx(0.219, abs=5e-4), pytest.approx(0.396, abs=5e-4)]
    assert row["verdict"] == "within the interval"


def test_two_tasks_that_were_solved_at_times_have_no_interval(tmp_path):
    for name, hard in (("stored", [1, 0]), ("results", [0, 0])):
        write_run(tmp_path / name, "grpo", 0, [1, 0], hard, attempts=2)
    row = of_one(tmp_path / "results" / RUN)
    assert row["verdict"] == "too few tasks for an interval"
    assert "success 0.250, stored 0.500 (too few tasks for an interval)" in sentence(row)


def solve(run, more):
    """Take ``more`` of the stored failures as solved."""
    episodes = read_jsonl(twin(run) / "episodes.jsonl")
    failed = [k for k, episode in enumerate(episodes) if not episode["success"]][:more]
    rewrite_jsonl(
        run / "episodes.jsonl", [e | {"success": e["success"] or k in failed} for k, e in enumerate(episodes)]
    )
    groups = read_json(twin(run) / "evaluation.json")["groups"]
    solved = sum(episode["success"] for episode in episodes) + more
    change(run / "evaluation.json", groups=groups | {"all": groups["all"] | {"success": solved / 200}})


def test_another_configuration_and_no_stored_run_are_said(fresh):
    change(fresh / "evaluation.json", fingerprint="0" * 16)
    assert of_one(fresh)["verdict"] == "another configuration"
    (row,) = reproduction([fresh / "evaluation.json"], fresh.parents[4] / "nothing")
    assert lines([row]) == [f"{RUN}: there is no stored run of it"]
