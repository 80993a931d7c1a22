"""Claims about learning of made-up runs, by hand: differences on the way, at equal tokens, and what is saved."""

import pandas as pd
import pytest
from pydantic import ValidationError
from report.runs import write_run

from r3l.core.errors import DataError
from r3l.evaluation.verification import sign
from r3l.files.json_files import append_jsonl
from r3l.report.claim_learning import BenchRuns, LearningTest
from r3l.report.claim_verdicts import claim_verdicts
from r3l.report.claims import Claims, load_claims
from r3l.report.figures import held_out
from r3l.report.figures.style import look
from r3l.report.frame import with_further
from r3l.report.reading import read_runs
from r3l.runs.run_paths import find_runs

R3L_AGAINST_GRPO = {"method": "r3l", "against": "grpo"}


def write_curve(root, method, seed, points, solved, tokens, rate=3e-4, final=None):
    """A run of four updates: test success by update in ``points`` (quarters), ``solved`` of 4 base rollouts and
    ``tokens`` at each update. An update that solved None had no base rollouts."""
    steps = [{"step": k, "tokens/generated": tokens} for k in range(1, len(solved) + 1)]
    for step, won in zip(steps, solved, strict=True):
        if won is not None:
            step |= {"rollouts": 4, "stop/success": won, "train/success": won / 4}
    end = points.get(4, final)
    bits = [int(k < 4 * end) for k in range(4)]
    path = write_run(root, method, seed, bits[:2], bits[2:], steps=steps, rate=rate)
    for update, success in points.items():
        group = {"episodes": 4, "success": success, "reward": success}
        line = {"step": update, "task_set": "nano/test", "temperature": 0.4, "groups": {"all": group}}
        append_jsonl(path.parent / "curve.jsonl", line | {"stops": {}, "solved": []})
    sign(path.parent)
    return path


@pytest.fixture
def runs(tmp_path):
    """Three seeds: R3L has 0.75 after updates 2 and 4, GRPO 0.25 and 1; a base checkpoint at 0.25; R3L spends half
    of GRPO's tokens. R3L at three times the rate is never read."""
    for seed in range(3):
        write_run(tmp_path, "zero_shot", seed, [1, 0], [0, 0])
        write_curve(tmp_path, "grpo", seed, {2: 0.25, 4: 1.0}, [1, 1, 2, 4], 100)
        write_curve(tmp_path, "r3l", seed, {2: 0.0, 4: 0.0}, [0, 0, 0, 0], 50, rate=9e-4)
        write_curve(tmp_path, "r3l@train.lr=0.0003", seed, {2: 0.75, 4: 0.75}, [2, 3, 3, 3 + seed % 2], 50)
    return read_runs(find_runs(tmp_path))


def test_differences_on_the_way_are_those_at_grpos_rate(runs):
    def values(success="held_out", **keys):
        test = LearningTest.model_validate(R3L_AGAINST_GRPO | {"success": success} | keys)
        return test.values_S(BenchRuns(runs))

    assert values(after=[2]) == [0.5] * 3 and values(after=[4]) == [-0.25] * 3
    assert values(after=[2, 4]) == [0.125] * 3  # (0.5 - 0.25) / 2
    assert values(after=[2], minus_after=[4]) == [0.75] * 3
    assert values(after=[3]) == []  # no run was scored there
    # Training: (2 + 3) / 8 minus 2 / 8; 3 / 4, 4 / 4 in the last update of seed 1, minus 1.
    assert values("training", after=[1, 2]) == [0.375] * 3
    assert values("training", after=[4, 4]) == [-0.25, 0.0, -0.25]
    assert values("training", after=[1, 5]) == []


def test_a_seed_trained_at_grpos_rate_under_two_names_is_one_value(tmp_path):
    for seed in range(3):
        write_curve(tmp_path, "grpo", seed, {2: 0.25, 4: 1.0}, [1, 1, 2, 4], 100)
        for name in ("r3l", "r3l@train.lr=0.0003"):
            write_curve(tmp_path, name, seed, {2: 0.75, 4: 0.75}, [2, 3, 3, 3], 50)
    test = LearningTest.model_validate(R3L_AGAINST_GRPO | {"success": "held_out", "after": [2]})
    assert test.values_S(BenchRuns(read_runs(find_runs(tmp_path)))) == [0.5] * 3


def test_equal_tokens_read_the_costlier_method_between_its_updates(runs):
    """After two updates R3L has spent 100 tokens, GRPO after one: halfway from 0.25 (base) to 0.25. After four it is
    200: GRPO's second update."""
    test = {"success": "held_out", "equal": "tokens"}
    at = {
        k: LearningTest.model_validate(R3L_AGAINST_GRPO | test | {"after": [k]}).values_S(BenchRuns(runs))
        for k in (2, 4)
    }
    assert at == {2: [0.5] * 3, 4: [0.5] * 3}
    trained = {"success": "training", "equal": "tokens", "after": [1, 4]}
    found = LearningTest.model_validate(R3L_AGAINST_GRPO | trained).values_S(BenchRuns(runs))
    assert found == pytest.approx([11 / 16 - 1 / 4, 12 / 16 - 1 / 4, 11 / 16 - 1 / 4])
    without_base = runs[runs.method != "zero_shot"]  # GRPO is not known before its second update
    early = LearningTest.model_validate(R3L_AGAINST_GRPO | test | {"after": [2]})
    assert early.values_S(BenchRuns(without_base)) == []


def test_what_is_saved_until_a_level(runs):
    """Half of GRPO's 1.0: R3L halfway from 0.25 to 0.75 in two updates, at 1 and 50 tokens; GRPO a third of the way
    from 0.25 to 1.0, at 2 2/3 and 266.7. R3L never reaches 1.0, and counts with its four updates; GRPO does at 4."""

    def saved(until, saves):
        keys = {"success": "held_out", "until": until, "saves": saves}
        return LearningTest.model_validate(R3L_AGAINST_GRPO | keys).values_S(BenchRuns(runs))

    assert saved(0.5, "updates") == pytest.approx([5 / 3] * 3)
    assert saved(0.5, "tokens") == pytest.approx([(800 / 3 - 50) / 1000] * 3)
    assert saved(1.0, "updates") == [0.0] * 3


def test_a_run_that_was_scored_at_the_end_alone_counts_there_alone(tmp_path):
    for seed in range(3):
        write_curve(tmp_path, "grpo", seed, {}, [1, 1, 2, 4], 100, final=1.0)
        write_curve(tmp_path, "r3l", seed, {2: 0.75, 4: 0.75}, [2, 3, 3, 3], 50)
    runs = read_runs(find_runs(tmp_path))
    ends = LearningTest.model_validate(R3L_AGAINST_GRPO | {"success": "held_out", "after": [4]})
    assert ends.values_S(BenchRuns(runs)) == [-0.25] * 3
    for keys in ({"after": [2]}, {"after": [4], "equal": "tokens"}, {"until": 0.5}):
        test = LearningTest.model_validate(R3L_AGAINST_GRPO | {"success": "held_out"} | keys)
        assert test.values_S(BenchRuns(runs)) == [], keys


def test_an_update_without_base_rollouts_has_no_training_success(tmp_path):
    """Of R3L's second to fourth update 2, 3 and 3 of 4 rollouts succeed; of GRPO's four 1, 1, 2 and 4."""
    for seed in range(3):
        write_curve(tmp_path, "grpo", seed, {2: 0.25, 4: 1.0}, [1, 1, 2, 4], 100)
        write_curve(tmp_path, "r3l", seed, {2: 0.75, 4: 0.75}, [None, 2, 3, 3], 50)
    runs = read_runs(find_runs(tmp_path))

    def values(**keys):
        test = LearningTest.model_validate(R3L_AGAINST_GRPO | {"success": "training"} | keys)
        return test.values_S(BenchRuns(runs))

    assert values(after=[1, 2]) == [0.25] * 3  # 2/4 minus 2/8
    assert values(after=[3, 4]) == [0.0] * 3  # 6/8 minus 6/8
    assert values(after=[1, 1]) == []
    # GRPO's level at the end is 0.5: its running mean is there after four updates, R3L's after two.
    assert values(until=1.0) == [2.0] * 3

    figure, *_ = held_out.held_out_curves(runs)
    against_grpo = figure.axes[2].lines[1]
    assert against_grpo.get_xdata().tolist() == [2, 3, 4]
    assert against_grpo.get_ydata().tolist() == pytest.approx([0.25, 0.25, 0.25 / 3])


def test_without_any_base_rollouts_nothing_is_compared_in_training(tmp_path):
    for seed in range(3):
        write_curve(tmp_path, "grpo", seed, {2: 0.25, 4: 1.0}, [1, 1, 2, 4], 100)
        write_curve(tmp_path, "r3l", seed, {2: 0.75, 4: 0.75}, [None] * 4, 50)
    runs = read_runs(find_runs(tmp_path))
    for keys in ({"after": [1, 2]}, {"until": 0.5}):
        test = LearningTest.model_validate(R3L_AGAINST_GRPO | {"success": "training"} | keys)
        assert test.values_S(BenchRuns(runs)) == []
    assert not held_out.held_out_curves(runs)[0].axes[2].lines


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"success": "held_out"}, "name either after"),
        ({"success": "held_out", "after": [1], "until": 0.5}, "name either after"),
        ({"success": "training", "after": [10]}, "a range: name its first and its last update"),
    ],
)
def test_a_test_that_asks_nothing_or_two_things_is_refused(keys, message):
    with pytest.raises(ValidationError, match=message):
        LearningTest.model_validate(R3L_AGAINST_GRPO | keys)


def claims_of(*claims):
    plan = {"margin": 0.02, "envs": ["alfworld"], "backbone": "Qwen2.5-1.5B-Instruct", "sources": {}}
    return Claims.model_validate(plan | {"claims": list(claims)})


def test_a_registered_claim_has_no_verdict_before_its_seeds(runs):
    """Three seeds of four are due one; the family counts both of its tests. The exploratory claim does not read the
    registered runs, and has no row in another environment of the registration."""
    ahead = {"claim": "R3L is ahead", "run": "r3l train", "family": "registered curves"}
    ahead |= {"learning": R3L_AGAINST_GRPO | {"success": "training", "after": [1, 4]}}
    due = ahead | {"id": "due", "seeds": {"alfworld": 4}}
    done = ahead | {"id": "done", "seeds": {"alfworld": 3}}
    seen = ahead | {"id": "seen", "family": "exploratory"}
    elsewhere = ahead | {"id": "elsewhere", "seeds": {"webshop": 3}}
    nothing = runs.iloc[:0]
    rows = claim_verdicts(nothing, [], claims_of(due, done, seen, elsewhere), runs)
    assert [(row.claim.id, row.count, row.verdict) for row in rows] == [
        ("due", 3, "not tested: 3 of 4 seeds"),
        ("done", 3, "ahead"),
        ("seen", 0, "not tested"),
    ]
    assert rows[0].comparison is None and rows[0].effect is not None
    # Two tests were registered: the one with a p-value is the first of two.
    assert rows[1].comparison.p_adjusted == pytest.approx(2 * rows[1].effect.p_value)
    assert rows[0].flat()["low"] == rows[1].flat()["low"]


def test_a_claim_is_written_out_for_each_value():
    each = {"against": ["grpo", "r3l_no_reflection"], "updates": [10, 20]}
    claim = {"id": "{against}_{updates}", "each": each, "run": "r3l compare {against}"}
    claim |= {"claim": "R3L is ahead of {against.label} after {updates} updates"}
    claim |= {
        "learning": {"method": "r3l", "against": "{against}", "success": "held_out", "after": ["{updates}"]}
    }
    first, *_, last = claims_of(claim).claims
    assert (first.id, first.claim) == ("grpo_10", "R3L is ahead of GRPO after 10 updates")
    assert (last.learning.against, last.learning.after) == ("r3l_no_reflection", [20])
    assert last.claim == "R3L is ahead of R3L w/o reflect-then-retry after 20 updates"


def test_no_claim_keeps_a_name_in_braces():
    claims = load_claims().claims
    assert not [
        claim.id for claim in claims if "{" in claim.model_dump_json().replace('{"', "").replace("{}", "")
    ]
    assert len({claim.id for claim in claims}) == len(claims)


def test_the_stored_run_is_preferred_to_its_repetition(tmp_path):
    write_run(tmp_path / "a", "grpo", 0, [1, 1], [0, 0])
    write_run(tmp_path / "b", "grpo", 0, [0, 0], [0, 0])
    write_run(tmp_path / "b", "grpo", 1, [1, 0], [0, 0])
    stored, repeated = (read_runs(find_runs(tmp_path / name)) for name in "ab")
    both = with_further(stored, repeated)
    assert both[both.group == "all"].success.tolist() == [0.5, 0.25]
    assert isinstance(with_further(stored, stored.iloc[:0]), pd.DataFrame)


def test_the_figure_shows_means_by_updates_and_by_tokens_and_paired_differences(runs, tmp_path):
    figure, _, text = held_out.held_out_curves(runs)
    by_updates, by_tokens, difference = figure.axes
    r3l = look("r3l").colour
    (line, *bars) = [line for line in by_updates.lines if line.get_color() == r3l]
    assert [line.get_xdata().tolist(), line.get_ydata().tolist()] == [[0, 2, 4], [0.25, 0.75, 0.75]]
    assert len(bars) == 2  # the base checkpoint is one for all seeds
    (line, *_) = [line for line in by_tokens.lines if line.get_color() == r3l]
    assert line.get_xdata().tolist() == [0.0, 0.1, 0.2]  # thousands
    zero, against_grpo = difference.lines
    # Means of the first one, two, three updates: 1/4, (1/4 + 2/4) / 2, (1/4 + 2/4 + 1/4) / 3.
    assert against_grpo.get_ydata()[:3].tolist() == pytest.approx([1 / 4, 3 / 8, 1 / 3])
    assert "seeds: ALFWorld: GRPO 3, R3L 3" in text
    other = held_out.held_out_curves(runs.assign(model="alfworld-1.5m-hints"))[2]
    assert "seeds: ALFWorld, alfworld-1.5m-hints: GRPO 3, R3L 3" in other
    first, second = (held_out.draw(runs, tmp_path / name)[0].read_bytes() for name in ("a.pdf", "b.pdf"))
    assert first == second and first.startswith(b"%PDF")


def test_the_figure_of_runs_that_were_scored_at_the_end_alone_is_refused(three_seeds):
    with pytest.raises(DataError, match="no run of r3l was scored on the way"):
        held_out.held_out_curves(read_runs(find_runs(three_seeds)))
