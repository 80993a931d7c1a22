"""`r3l power`: seeds and hours of a plan, worked out by hand from runs as they are left."""

import json

import pytest
from report.runs import rewrite, write_run
from typer.testing import CliRunner

from r3l import cli
from r3l.evaluation.power import Goal, StoppingRule, seeds_needed
from r3l.report import records
from r3l.report.comparison import power
from r3l.report.comparison.compare import compare
from r3l.runs.places import find_runs

STEPS = [{"step": 1, "seconds/collect": 200.0, "seconds/train": 160.0}]


@pytest.fixture
def runs(tmp_path):
    """R3L minus GRPO: 0.25, 0.5 and 0.75 of four tasks; a run takes 360 s of R3L and 720 s of GRPO on two cores."""
    for seed, won in enumerate(([1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1])):
        write_run(tmp_path, "r3l", seed, won[:2], won[2:], steps=STEPS)
        grpo = write_run(tmp_path, "grpo", seed, [1, 0], [0, 0], steps=STEPS)
        manifest = json.loads((grpo.parent / "manifest.json").read_text())
        manifest["run"]["threads"] = 2
        rewrite(grpo.parent / "manifest.json", json.dumps(manifest))
    return tmp_path


def planned(root, wanted, comparisons=1):
    runs = records.load(find_runs(root))
    return power.power_rows(compare(runs, "r3l", ["grpo"]), runs, wanted, Goal(comparisons=comparisons))


def test_seeds_and_core_hours_of_a_wanted_difference(runs):
    (row,) = planned(runs, 0.25)
    assert (row["pairs"], row["spread"], row["difference_mean"]) == (3, pytest.approx(0.25), 0.5)
    assert row["seeds_needed"] == 10  # one standard deviation: ten pairs (Cohen 1988)
    # chi-square quantiles with 2 degrees of freedom: 7.377759 and 0.050636
    assert row["spread_low"] == pytest.approx(0.25 * (2 / 7.377759) ** 0.5, rel=1e-5)
    assert row["spread_high"] == pytest.approx(0.25 * (2 / 0.050636) ** 0.5, rel=1e-4)
    assert row["seeds_needed_low"] == seeds_needed(row["spread_low"], 0.25) < 10 < row["seeds_needed_high"]
    # 360 s on one core and 360 s on two: 0.3 core-hours a pair of runs
    assert row["core_hours"] == pytest.approx(10 * 0.3)
    assert row["core_hours_left"] == pytest.approx(7 * 0.3)
    assert row["shows"][10] == pytest.approx(0.249, abs=1e-3)
    assert planned(runs, 0.25, comparisons=10)[0]["seeds_needed"] > 10


def test_the_table_says_how_little_three_seeds_say_of_their_spread(runs):
    shown = power.power_table(planned(runs, 0.25), Goal())
    (cells,) = shown.cells()
    assert [cell.text for cell in cells[:3]] == ["ALFWorld", "GRPO", "3"]
    assert "behind one of 3 seeds is 0.52 to 6.28 times as much" in shown.notes[0]


def test_two_methods_without_common_seeds_are_no_plan(runs):
    write_run(runs, "raft", 7, [1], [0])
    loaded = records.load(find_runs(runs))
    (row,) = power.power_rows(compare(loaded, "r3l", ["raft"]), loaded, 0.05, Goal())
    assert (row["pairs"], row["spread"], row["seeds_needed"], row["core_hours"]) == (0, None, None, None)
    (due,) = power.due_rows([row], StoppingRule(), Goal())
    assert due["seeds_due"] == 5
    power.power_table([row], Goal())


def test_the_command_plans_and_draws(runs, tmp_path):
    def run(*options):
        return CliRunner().invoke(
            cli.app, ["compare", "r3l", "--power", "0.8", "--against", "grpo", "--stored", str(runs), *options]
        )

    plan = run("--difference", "0.25", "--json", "--out", str(tmp_path / "power.png"))
    assert json.loads(plan.stdout)["rows"][0]["seeds_needed"] == 10
    assert (tmp_path / "power.png").read_bytes().startswith(b"\x89PNG")
