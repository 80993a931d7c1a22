"""`r3l power`: seeds and hours of a plan, worked out by hand from runs as they are left."""

import json

import pytest
from report.runs import rewrite, write_run
from typer.testing import CliRunner

from r3l import cli
from r3l.report import power
from r3l.report.compare import compare_methods
from r3l.report.reading import read_runs
from r3l.runs.run_paths import find_runs
from r3l.stats.power import PowerTarget


def steps(tokens):
    """One, of 360 s; no two runs have the same."""
    return [{"step": 1, "seconds/collect": 200.0, "seconds/train": 160.0, "tokens/generated": tokens}]


@pytest.fixture
def runs(tmp_path):
    """R3L minus GRPO: 0.25, 0.5 and 0.75 of four tasks; a run takes 360 s of R3L and 720 s of GRPO on two
    cores."""
    for seed, won in enumerate(([1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1])):
        write_run(tmp_path, "r3l", seed, won[:2], won[2:], steps=steps(seed))
        grpo = write_run(tmp_path, "grpo", seed, [1, 0], [0, 0], steps=steps(10 + seed))
        manifest = json.loads((grpo.parent / "manifest.json").read_text())
        manifest["run"]["threads"] = 2
        rewrite(grpo.parent / "manifest.json", json.dumps(manifest))
    return tmp_path


def planned(root, wanted, comparisons=1):
    runs = read_runs(find_runs(root))
    return power.power_rows(
        compare_methods(runs, "r3l", ["grpo"]), runs, wanted, PowerTarget(comparisons=comparisons)
    )


def test_seeds_and_core_hours_of_a_wanted_difference(runs):
    (row,) = planned(runs, 0.25)
    assert (row.comparison.pairs, row.comparison.spread) == (3, pytest.approx(0.25))
    assert row.seeds == 10  # one standard deviation: ten pairs (Cohen 1988)
    # 360 s on one core and 360 s on two: 0.3 core-hours a pair of runs
    assert (row.core_hours, row.core_hours_left) == (pytest.approx(10 * 0.3), pytest.approx(7 * 0.3))
    assert planned(runs, 0.25, comparisons=10)[0].seeds > 10
    assert row.seeds_due == 2  # of the first block of five
    (cells,) = power.power_table([row], 0.25, PowerTarget()).cells()
    assert [cell.text for cell in cells[:3]] == ["ALFWorld", "GRPO", "3"]
    # chi-square quantiles with 2 degrees of freedom: 7.377759 and 0.050636
    low, high = (0.25 * (2 / quantile) ** 0.5 for quantile in (7.377759, 0.050636))
    assert cells[3].text == f"0.250 ({low:.3f} to {high:.3f})" and cells[4].text.startswith("10 (")
    assert cells[9].text == "0.249"  # the MDE of ten seeds


def test_the_command_plans(runs):
    options = ["--power", "0.8", "--difference", "0.25", "--against", "grpo", "--stored", str(runs), "--json"]
    done = CliRunner().invoke(cli.app, ["compare", "power", "r3l", *options])
    assert json.loads(done.stdout)["rows"][0]["seeds_needed"] == 10
