"""`r3l registered`: the stopping rule, the test and the verdicts of the pre-registration, by hand."""

import json

import numpy as np
import pytest
from report.runs import write_run
from typer.testing import CliRunner

from r3l import cli
from r3l.files.json_files import read_json
from r3l.files.paths import STORED
from r3l.report.reading import read_runs
from r3l.report.registered import Registered, load_registered, registered_rows, registered_table
from r3l.runs.run_paths import HINT_GAP, find_runs
from r3l.stats.comparison import Effect

PLAN = load_registered().model_copy(update={"envs": ["alfworld", "math"], "earlier": []})


def rows_of(root, differences):
    """Of four tasks R3L solves as many more than GRPO's two as ``differences`` say, a seed each."""
    for seed, more in enumerate(differences):
        solved = 2 + more
        write_run(
            root, "r3l", seed, [1, 1] if solved > 1 else [solved, 0], [int(solved > 2), int(solved > 3)]
        )
        write_run(root, "grpo", seed, [1, 1], [0, 0])
    return registered_rows(read_runs(find_runs(root)), PLAN)


def test_no_verdict_before_the_stopping_rule_is_met(tmp_path):
    alfworld, math = rows_of(tmp_path, [2, 2, 1, 2, 1])
    assert (alfworld.pairs, alfworld.seeds_due, alfworld.verdict) == (5, 5, "5 more seeds are due")
    assert alfworld.p_holm < 0.03
    assert (math.pairs, math.verdict) == (0, "not begun")


def test_twenty_seeds_are_the_most_and_give_a_verdict(tmp_path):
    """Differences of 0.5 and 0.25 in turn: mean 0.375, standard deviation 0.12825; t(19) at 0.985 is
    2.3456."""
    alfworld, math = rows_of(tmp_path, [2, 1] * 10)
    assert (alfworld.seeds_due, alfworld.verdict) == (0, "supported")
    assert alfworld.high - alfworld.difference == pytest.approx(2.3456 * 0.12825 / 20**0.5, rel=1e-3)
    assert alfworld.p_holm < 0.001  # of two environments, one without runs


@pytest.mark.parametrize(
    "differences, verdict",
    [
        ([-2, -1] * 10, "rejected"),  # shown to be worse
        ([1, -1] * 10, "inconclusive"),  # -0.134 to 0.134
        ([0] * 20, "inconclusive"),  # no spread says nothing of other seeds
        ([0] * 17 + [-1, 0, 0], "rejected"),  # not shown, yet at most 0.017 better, less than 0.04
    ],
)
def test_what_counts_against_a_claim(tmp_path, differences, verdict):
    assert rows_of(tmp_path, differences)[0].verdict == verdict


def test_the_verb_takes_runs_of_todays_start_models_alone(tmp_path):
    write_run(tmp_path, "grpo", 0, [1, 1], [0, 0])
    result = CliRunner().invoke(
        cli.app, ["compare", "registered", "--stored", str(tmp_path), "--json"], catch_exceptions=False
    )
    rows, plan = json.loads(result.stdout)["rows"], load_registered()
    assert [row["env"] for row in rows if "model" not in row] == plan.envs
    assert [row["model"] for row in rows if "model" in row] == [one.model for one in plan.earlier]


def test_an_earlier_comparison_keeps_its_verdict_and_counts_in_the_correction(tmp_path):
    """Five seeds, spread 0.05: t(4) at 0.985 is 3.298, so the interval is +-0.0737 about -0.02."""
    earlier = {
        "env": "math",
        "model": "math-0",
        "pairs": 5,
        "ours_mean": 0.7,
        "theirs_mean": 0.72,
        "spread": 0.05,
    }
    earlier |= {"p_value": 0.4, "verdict": "inconclusive", "commit": "0123abc"}
    plan = Registered.model_validate(PLAN.model_dump() | {"envs": ["alfworld"], "earlier": [earlier]})
    for seed, more in enumerate([2, 1] * 10):
        write_run(tmp_path, "r3l", seed, [1, 1], [1, int(more > 1)])
        write_run(tmp_path, "grpo", seed, [1, 1], [0, 0])
    now, before = registered_rows(read_runs(find_runs(tmp_path)), plan)
    assert now.p_holm < 0.001 and now.verdict == "supported"
    assert (before.verdict, before.p_holm, before.earlier.commit) == ("inconclusive", 0.4, "0123abc")
    assert (before.low, before.high) == pytest.approx((-0.0937, 0.0537), abs=1e-3)
    assert len(list(registered_table([now, before], plan).cells())) == 2


def test_the_recorded_comparison_from_the_base_checkpoint_before_is_what_its_stored_runs_give():
    """configs/registered.yaml holds its numbers, as it does of runs that are no longer in the tree."""
    (recorded,) = [one for one in load_registered().earlier if one.model == "alfworld-1.5m-hints"]
    cell = STORED / HINT_GAP / "nano" / recorded.env / recorded.model
    ours, theirs = (
        [
            read_json(cell / method / f"seed{seed}" / "evaluation.json")["groups"]["all"]["success"]
            for seed in range(recorded.pairs)
        ]
        for method in ("r3l", "grpo")
    )
    found = Effect.of_seeds(np.subtract(ours, theirs))
    assert (np.mean(ours), np.mean(theirs)) == pytest.approx((recorded.ours_mean, recorded.theirs_mean))
    assert (found.deviation, found.p_value) == pytest.approx((recorded.spread, recorded.p_value))
