"""Claims about made-up runs, by hand; configs/claims.yaml; the stored table is what the stored runs give."""

import pandas as pd
import pytest
from docs.test_commands import check
from report.runs import write_run

from r3l.files.paths import STORED
from r3l.report import probes
from r3l.report.claim_learning import BenchRuns
from r3l.report.claim_rows import ClaimVerdict
from r3l.report.claim_verdicts import claim_verdicts
from r3l.report.claims import Claims, ScoreTest, TrainingTest, load_claims
from r3l.report.claims_table import claims_table, in_short
from r3l.report.reading import read_runs
from r3l.report.table import write
from r3l.runs.run_paths import HINT_GAP, find_runs
from r3l.stats.comparison import power_of

PAPER = {"file": "main.csv", "tables": ["table1"], "row": "R3L", "minus": "GRPO"}
AHEAD = {"id": "a", "claim": "R3L is ahead", "run": "r3l compare r3l --env ENV", "paper": PAPER}
AHEAD |= {"score": {"method": "r3l", "against": "grpo"}}
HARD = {"id": "h", "claim": "On hard tasks more", "run": "r3l compare r3l --env ENV"}
HARD |= {"score": {"method": "r3l", "against": "grpo", "group": "hard"}}
HARD["score"] |= {"beyond": {"method": "r3l", "against": "grpo", "group": "easy"}}
GROWTH = {"id": "g", "claim": "Reflections stay valid", "run": "r3l train", "says": "equivalent"}
GROWTH |= {"training": {"method": "r3l", "rate": "reflection_valid", "change": 1}}
OF = Claims.model_validate(
    {"margin": 0.02, "envs": ["alfworld"], "backbone": "Qwen2.5-1.5B-Instruct", "sources": {}}
    | {"claims": [AHEAD, HARD, GROWTH]}
)


def of_seeds(root, solved):
    """Of two easy and two hard tasks GRPO solves the easy ones, R3L as many hard ones besides as ``solved``
    says; its valid reflections fall from 4 of 4 to 3 of 4."""
    steps = [{"reflection/count": 4, "reflection/valid": valid, "step": k} for k, valid in ((1, 4), (2, 3))]
    for seed, hard in enumerate(solved):
        write_run(root, "grpo", seed, [1, 1], [0, 0])
        write_run(root, "r3l", seed, [1, 1], [int(hard > 0), int(hard > 1)], steps=steps)
    return claim_verdicts(read_runs(find_runs(root)), [], OF)


def test_effects_of_four_seeds_by_hand(tmp_path):
    """Differences of 0.25, 0.5, 0.25, 0.5: mean 0.375, error 0.14434 / 2; t(3) 3.1824 at 0.975. On hard tasks
    twice that. p is 0.0138 (t = 5.196) for both, and 0 for the third: as the second and third of three by
    Benjamini-Hochberg they are multiplied by 3 / 2 and 3 / 3, and the smaller holds for both. The paper's
    effect of 0.208 is 2.88 errors of 0.0722, at the full level of 5 %, since all three are found."""
    ahead, hard, growth = of_seeds(tmp_path, [1, 2, 1, 2])
    assert (ahead.effect.mean, ahead.effect.bounds()) == (0.375, pytest.approx((0.1453, 0.6047), abs=1e-4))
    assert (ahead.over, ahead.count, ahead.verdict) == ("seeds", 4, "ahead")
    assert ahead.comparison.p_adjusted == hard.comparison.p_adjusted == pytest.approx(0.0138, abs=1e-4)
    assert ahead.power == pytest.approx(power_of(2.88 / 2, 4), abs=0.005) and hard.power is None
    assert (hard.effect.mean, hard.verdict) == (0.75, "ahead")
    assert (ahead.paper, ahead.paper_source) == (
        pytest.approx(0.208),
        "main.csv, line 56 minus main.csv, line 20",
    )
    assert (growth.effect.mean, growth.comparison.mde_adjusted, growth.verdict, growth.as_claimed) == (
        -0.25,
        None,
        "behind",
        False,
    )


def test_claims_from_a_replaced_base_checkpoint_are_a_family_of_their_own(tmp_path):
    """Each of the two checkpoints has one p-value per claim, corrected without the other's."""
    alone = of_seeds(tmp_path / "now", [1, 2, 1, 2])
    for seed, hard in enumerate([1, 2, 1, 2]):
        write_run(tmp_path / "now", "grpo", seed, [1, 1], [1, 1], model="alfworld-1.5m-hints")
        write_run(tmp_path / "now", "r3l", seed, [1, 1], [hard - 1, 0], model="alfworld-1.5m-hints")
        write_run(tmp_path / "now", "r3l", seed, [0, 0], [0, 0], model="never-in-use")
        write_run(tmp_path / "now", "grpo", seed, [1, 1], [0, 0], model="never-in-use")
    rows = claim_verdicts(read_runs(find_runs(tmp_path / "now")), [], OF)
    of_paper = [row for row in rows if row.claim.family == "paper"]
    assert [(row.label, row.comparison) for row in of_paper] == [
        ("ALFWorld", row.comparison) for row in alone
    ]
    (replaced, *_) = [row for row in rows if row.claim.family == "replaced base checkpoint"]
    assert (replaced.label, replaced.verdict) == ("ALFWorld, alfworld-1.5m-hints", "behind")
    assert replaced.effect.mean == -0.375 and {row.bench[2] for row in rows} == {
        "alfworld-1.5m-plain",
        "alfworld-1.5m-hints",
    }


def test_two_seeds_and_none(tmp_path):
    ahead, hard, growth = of_seeds(tmp_path, [1, 2])
    assert (ahead.points, ahead.comparison, ahead.verdict) == ((0.25, 0.5), None, "too few (2 seeds)")
    nothing = claim_verdicts(read_runs([]), [], OF)
    assert [row.verdict for row in nothing] == ["not tested"] * 3
    shown = claims_table([ahead, *nothing[1:]], OF).sections
    assert shown[0].rows[0]["effect"].text == "+0.250, +0.500"


def test_a_difference_at_unequal_learning_rates_needs_the_same_at_equal_ones(tmp_path):
    """R3L at 9e-4 is ahead of GRPO at 3e-4 in all four seeds; at 3e-4 it is ahead by as much, or not at
    all."""
    for seed, hard in enumerate([1, 2, 1, 2]):
        write_run(tmp_path, "grpo", seed, [1, 1], [0, 0], rate=3e-4)
        write_run(tmp_path, "r3l", seed, [1, 1], [int(hard > 0), int(hard > 1)], rate=9e-4)
    ahead = claim_verdicts(read_runs(find_runs(tmp_path)), [], OF)[0]
    assert (ahead.comparison.verdict, ahead.verdict, ahead.as_claimed) == ("ahead", "inconclusive", False)
    assert in_short(ahead) == "+0.375 (rates differ)"
    assert ahead.rates_note == "learning rates differ (9e-4, 3e-4): not run at equal rates"

    for verdict, hard_tasks in (("ahead", [1, 2, 1, 2]), ("inconclusive", [0, 1, 0, 0])):
        runs = tmp_path / verdict
        for seed, hard in enumerate(hard_tasks):
            write_run(runs, "grpo", seed, [1, 1], [0, 0], rate=3e-4)
            write_run(runs, "r3l", seed, [1, 1], [1, 1], rate=9e-4)
            write_run(runs, "r3l@train.lr=0.0003", seed, [1, 1], [int(hard > 0), int(hard > 1)], rate=3e-4)
        row = claim_verdicts(read_runs(find_runs(runs)), [], OF)[0]
        assert row.verdict == verdict and "at equal rates (4 seeds)" in row.rates_note


def test_equivalence_at_unequal_learning_rates_holds_where_equal_ones_show_it_too(tmp_path):
    """Neither R3L at 9e-4 nor R3L at 3e-4 differs from GRPO in a seed."""
    for seed in range(4):
        write_run(tmp_path, "grpo", seed, [1, 1], [0, 0], rate=3e-4)
        write_run(tmp_path, "r3l", seed, [1, 1], [0, 0], rate=9e-4)
        write_run(tmp_path, "r3l@train.lr=0.0003", seed, [1, 1], [0, 0], rate=3e-4)
    row = claim_verdicts(read_runs(find_runs(tmp_path)), [], OF)[0]
    assert (row.comparison.verdict, row.verdict) == ("equivalent", "equivalent")


def probe(schema, guided_minus_fresh, **others):
    low, high = guided_minus_fresh - 0.05, guided_minus_fresh + 0.05
    measure = {"value": guided_minus_fresh, "low": low, "high": high, "n": 200, "tasks": 100}
    measured = {"measures": {"guided_minus_fresh": measure}, "reflection_schema": schema}
    place = {"tier": "smol", "env": "gsm8k", "model": {"name": "qwen2.5-coder-1.5b"}}
    return place | {"task_set": {"name": "gsm8k/test"}, "temperature": 1.0} | measured | others


def test_every_probe_of_one_model_is_shown_and_named_by_what_differs():
    """Two probes of one model on one environment; a copy of the first in a second folder counts once."""
    retries = {"id": "r", "claim": "Retries beat fresh attempts", "run": "r3l probe ENV"}
    of = Claims.model_validate(
        OF.model_dump() | {"claims": [retries | {"probe": {"measure": "guided_minus_fresh"}}]}
    )
    strict, lines = probe("strict", -0.098), probe("lines", -0.127)
    rows = [row for row in claim_verdicts(read_runs([]), [strict, lines, dict(strict)], of) if row.count]
    assert [round(row.effect.mean, 3) for row in rows] == [-0.098, -0.127]
    assert [row.label for row in rows] == [f"GSM8K (in-domain), {row.probe}" for row in rows]
    assert [row.flat()["probe"] for row in rows] == [
        "reflection schema strict",
        "reflection schema lines",
    ]
    cooler = probe("strict", -0.05, temperature=0.7)
    hot, cold = (row for row in claim_verdicts(read_runs([]), [strict, cooler], of) if row.count)
    assert (hot.probe, cold.probe) == ("temperature 1.0", "temperature 0.7")
    (alone,) = (row for row in claim_verdicts(read_runs([]), [lines], of) if row.count)
    assert (alone.label, alone.probe) == ("GSM8K (in-domain)", "")
    slower = strict | {"seconds": {"play": 1.0}}
    again = (row.probe for row in claim_verdicts(read_runs([]), [strict, slower], of) if row.count)
    assert list(again) == ["1 of 2", "2 of 2"]  # the same conditions twice


def test_a_probe_of_an_environment_that_is_gone_is_left_out_by_name(caplog):
    retries = {"id": "r", "claim": "Retries beat fresh attempts", "run": "r3l probe ENV"}
    of = Claims.model_validate(
        OF.model_dump() | {"claims": [retries | {"probe": {"measure": "guided_minus_fresh"}}]}
    )
    gone, here = probe("lines", -0.1, env="labyrinth"), probe("strict", -0.2)
    (row,) = (row for row in claim_verdicts(read_runs([]), [gone, here], of) if row.count)
    assert row.effect.mean == -0.2
    (warning,) = (record.getMessage() for record in caplog.records)
    assert "probe is left out: qwen2.5-coder-1.5b, lines in labyrinth: " in warning


def test_a_control_is_subtracted_by_seed(tmp_path):
    """Pivots near the critic's: 3 of 4 and 2 of 4 in two seeds of R3L, 1 of 4 in both of random pivots. Of two hard
    tasks that the base checkpoint never solved R3L solves one and both, GRPO none and one; a task that it solved once
    does not count."""
    near = {"reflection_quality/accurate": 1, "reflection_quality/partial": 2, "reflection_quality/wrong": 1}
    for seed in range(2):
        pivots = [{"step": 1, "pivot/oracle_near": 3 - seed, **near}]
        write_run(tmp_path, "r3l", seed, [0, 0], [1, seed], steps=pivots, budget=pivots[0])
        random = [{"step": 1, "pivot/oracle_near": 1, **near}]
        write_run(tmp_path, "r3l_random_pivot", seed, [1, 1], [1, 1], steps=random, budget=random[0])
        write_run(tmp_path, "grpo", seed, [1, 1], [0, seed])
        write_run(tmp_path, "zero_shot", seed, [1, 1 - seed], [0, 0])
    runs = read_runs(find_runs(tmp_path))
    pivots = TrainingTest(method="r3l", rate="pivot_oracle_near", against="r3l_random_pivot")
    assert pivots.values_S(BenchRuns(runs)) == [0.5, 0.25]
    assert ScoreTest(method="r3l", against="grpo", unsolved_by="zero_shot").values_S(BenchRuns(runs)) == [
        0.5,
        0.5,
    ]
    assert ScoreTest(method="r3l", against="grpo", unsolved_by="raft").values_S(BenchRuns(runs)) == []


def test_every_claim_names_a_command_that_exists():
    for claim in load_claims().claims:
        for command in claim.run.replace("ENV", "alfworld").replace("RATE", "0.0003").split(" && "):
            assert check(command.removeprefix("r3l ")) == [], claim.id


def test_a_row_names_the_command_that_makes_runs_of_its_tier_and_base_checkpoint():
    """Every row of the stored table; two by hand."""
    rows = pd.read_csv(STORED / "claims_nano.csv")
    for command in {command for of_row in rows.run for command in of_row.split(" && ")}:
        assert check(command.removeprefix("r3l ")) == [], command
    run = {(row.id, row.model): row.run for row in rows.itertuples()}
    replaced = "r3l compare r3l --against grpo --env alfworld --seed 0,1,2,3,4"
    assert run["ahead_grpo", "alfworld-1.5m-plain"] == replaced
    assert run["ahead_grpo", "alfworld-1.5m-hints"] == f"{replaced} --model alfworld-1.5m-hints"
    assert run["ahead_grpo", "qwen2.5-coder-0.5b"].endswith("--env gsm8k_lines --seed 0,1,2,3,4 --tier smol")


def test_the_command_of_a_row_names_grpos_rate_where_it_is_not_the_methods_own():
    """R3L's own rate is GRPO's on mathematics, and three times as high on ScienceWorld."""
    (claim,) = [claim for claim in load_claims().claims if claim.id == "saves_tokens_grpo"]
    math = ClaimVerdict(claim, ("nano", "math", "math-1.5m"), "")
    assert math.run == "r3l compare r3l --against grpo --env math --seed 0,1,2,3,4"
    scienceworld = ClaimVerdict(claim, ("nano", "scienceworld", "scienceworld-1.5m"), "")
    assert scienceworld.run.startswith("r3l compare r3l@train.lr=0.0003 --against grpo --env scienceworld")
    (claim,) = [claim for claim in load_claims().claims if claim.id == "learns_early_grpo"]
    of_grpo = ClaimVerdict(claim, ("nano", "webshop", "webshop-1.5m"), "")
    assert (
        of_grpo.run == "r3l train --env webshop --method grpo --seed 0 --set evaluation.curve=[10,20,30,60]"
    )
    gone = ClaimVerdict(claim, ("nano", "labyrinth", "math-1.5m"), "")
    assert "--env labyrinth --method grpo --seed 0 --set train.lr=RATE" in gone.run


def test_the_stored_table_is_what_the_stored_runs_give(stored, stored_curves, tmp_path):
    of = load_claims()
    stored = pd.concat([stored, read_runs(find_runs(STORED / HINT_GAP))])
    rows = claim_verdicts(stored, probes.read_folders([STORED]), of, stored_curves)
    write([row.flat() for row in rows], claims_table(rows, of), tmp_path / "claims.csv")
    for suffix in (".csv", ".md", ".tex"):
        assert (tmp_path / f"claims{suffix}").read_text() == (STORED / f"claims_nano{suffix}").read_text(), (
            suffix
        )
