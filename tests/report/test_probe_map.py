"""The map: comparisons of stored runs with probes, the rule through them, and what it says of a probed model."""

import json

import pytest
from report.runs import write_run

from r3l.core.errors import DataError
from r3l.evaluation.verification import sign
from r3l.files.json_files import append_jsonl
from r3l.files.paths import STORED
from r3l.report.figures import probe_map as figure
from r3l.report.map_rule import KNOWN_BEFORE, checked, expectation, lines, name_of, predicted_before, sentence
from r3l.report.map_table import map_table, registered_tests
from r3l.report.probe_map import flat, kept_success, map_rows, read_map
from r3l.report.table import write

MODEL = "alfworld-1.5m-plain"


def of_updates(*successes):
    return [{"step": k, "rollouts": 1, "stop/success": success} for k, success in enumerate(successes, 1)]


def write_probe(root, guided_minus_fresh, name="alfworld", env="alfworld", **others):
    """A probe of 100 failures; 40 of 60 retried successes are kept (retries: 0.7 of all 160, 0.72 of failures)."""
    measure = {"value": guided_minus_fresh, "low": None, "high": None, "n": 100, "tasks": 50}
    shares = {"success": 0.25, "retry_success": 0.72, "hint_gap": 0.1}
    measures = {key: measure | {"value": value} for key, value in shares.items()}
    measures |= {"guided_minus_fresh": measure, "retry_success_all": measure | {"value": 0.7, "n": 160}}
    content = {
        "env": env,
        "label": "ALFWorld",
        "tier": "nano",
        "model": {"name": MODEL, "weights_sha256": None, "parameters": 10},
        "temperature": 0.7,
        "task_set": {"name": "nano/validation", "sha256": "", "tasks": 50},
        "attempts": 160,
        "tasks": 50,
        "measures": measures,
    }
    (root / "probe").mkdir(parents=True, exist_ok=True)
    (root / "probe" / f"{name}.json").write_text(json.dumps(content | others))


def write_pairs(root, rate=3e-4, r3l="r3l", settings=None):
    """Three seeds of six updates: R3L leads by 0.1, 0.2 and 0.3 in the first two; of two tasks it solves at the end
    one more, as many, and one less."""
    for seed, (lead, ours, theirs) in enumerate(
        [(0.1, [1, 1], [1, 0]), (0.2, [1, 0], [0, 1]), (0.3, [0, 0], [1, 0])]
    ):
        later = (0.5,) * 4
        write_run(root, "grpo", seed, theirs[:1], theirs[1:], steps=of_updates(0.2, 0.4, *later))
        steps = of_updates(0.2 + lead, 0.4 + lead, *later)
        write_run(root, r3l, seed, ours[:1], ours[1:], steps=steps, rate=rate, settings=settings)


def test_a_comparison_by_hand(tmp_path):
    """Early: 0.2 with t(2) = 4.303 times 0.1 / sqrt(3); final: 0.5, 0 and -0.5."""
    write_pairs(tmp_path)
    write_probe(tmp_path, 0.3)
    (row,) = map_rows([tmp_path])
    assert (row["seeds"], row["learning_rate"], row["guided_minus_fresh"]) == (3, 3e-4, 0.3)
    assert (row["early"], row["final"]) == (pytest.approx(0.2), pytest.approx(0))
    assert row["early_high"] - row["early"] == pytest.approx(4.302653 * 0.1 / 3**0.5, rel=1e-5)
    assert row["kept_success"] == pytest.approx((0.7 * 160 - 0.72 * 100) / 60)
    assert row["part"] == "main" and "early_test" not in row


def test_a_seed_that_was_trained_under_two_names_counts_once(tmp_path):
    write_pairs(tmp_path)
    for seed in range(3):
        write_run(tmp_path, "r3l@train.lr=0.0003", seed, [1], [1], steps=of_updates(*[1.0] * 6))
    write_probe(tmp_path, 0.3)
    (row,) = map_rows([tmp_path])
    assert (row["seeds"], row["early"]) == (3, pytest.approx(0.2))


def test_held_out_success_at_equal_tokens_by_hand(tmp_path):
    """GRPO spends 100 tokens an update, R3L 50; test success of R3L is 0.25 above GRPO's after each update.

    After 20 updates of R3L, 1,000 tokens, GRPO is at its tenth update.
    """
    for seed in range(3):
        for method, tokens, lead in (("grpo", 100, 0.0), ("r3l", 50, 0.25)):
            steps = [
                {
                    "step": k,
                    "rollouts": 4,
                    "stop/success": 1,
                    "tokens/generated": tokens,
                    "train/success": 0.25,
                }
                for k in range(1, 61)
            ]
            path = write_run(tmp_path, method, seed, [1, 1], [1, 0], steps=steps)
            for update, success in {10: 0.25, 20: 0.5, 60: 0.5}.items():
                group = {"episodes": 4, "success": success + lead, "reward": 0.0}
                line = {"step": update, "task_set": "nano/test", "temperature": 0.4, "groups": {"all": group}}
                append_jsonl(path.parent / "curve.jsonl", line | {"stops": {}, "solved": []})
            sign(path.parent)
    write_probe(tmp_path, 0.3)
    (row,) = map_rows([tmp_path])
    # After 20 updates R3L has 0.75, GRPO at as many tokens 0.25. At the end (3,000 tokens) both have 0.75 on the
    # test set, and GRPO at its thirtieth update is a quarter of the way from 0.5 to 0.75.
    assert row["tokens_20"] == pytest.approx(0.5)
    assert row["tokens_60"] == pytest.approx(0.75 - (0.5 + 0.25 * 10 / 40))


def test_runs_at_another_rate_or_under_other_feedback_do_not_count(tmp_path):
    write_pairs(tmp_path / "rate", rate=9e-4)
    write_probe(tmp_path / "rate", 0.3)
    write_pairs(tmp_path / "feedback")
    write_probe(tmp_path / "feedback", 0.3, feedback="environment", feedback_corruption=0.5)
    assert map_rows([tmp_path / "rate"]) == map_rows([tmp_path / "feedback"]) == []
    write_pairs(tmp_path / "map")
    write_probe(tmp_path / "map", 0.3)
    assert [row["part"] for row in map_rows([tmp_path])] == ["map"]


def test_a_critic_that_is_wrong_in_a_share_is_placed_between_the_probes_of_both_kinds(tmp_path):
    """A quarter of the way from +0.40 to -0.02: +0.295, without an interval. A probe of its own goes first."""
    settings = {"feedback": "environment", "feedback_corruption": 0.25}
    write_pairs(tmp_path, r3l="r3l@feedback=environment,feedback_corruption=0.25", settings=settings)
    write_probe(tmp_path, 0.40, "right", feedback="environment")
    assert map_rows([tmp_path]) == []
    write_probe(tmp_path, -0.02, "wrong", feedback="environment", feedback_corruption=1.0)
    (row,) = map_rows([tmp_path])
    assert row["guided_minus_fresh"] == pytest.approx(0.295) and row["feedback_corruption"] == 0.25
    assert row["guided_minus_fresh_low"] is None and row["hint_gap"] is None and row["base_success"] == 0.25
    write_probe(tmp_path, 0.1, "own", feedback="environment", feedback_corruption=0.25)
    (row,) = map_rows([tmp_path])
    assert row["guided_minus_fresh"] == 0.1


def rows(*points, part="main"):
    """Comparisons at (guided minus fresh, early, final)."""
    common = {"label": "WebShop", "feedback": "self", "feedback_corruption": 0.0, "part": part, "model": "m"}
    return [
        common
        | {"guided_minus_fresh": x, "early": early, "final": final, "seeds": 3, "learning_rate": 1e-4}
        | {"base_success": 0.2}
        for x, early, final in points
    ]


def test_registered_tests_wait_for_all_comparisons():
    """Slopes 0.3, 0 and 0.3 with one error of 0.01 each; 17 of 18 comparisons give no verdict."""
    cells = []
    for k in range(18):
        x, error = k / 36, 0.01 * (-1) ** k
        (row,) = rows((x, 0, error), part="map")
        cells.append(
            row | {"env": "ab"[k % 2], "early_test": 0.3 * x, "early_test_unreflected": 0.3 * x + error}
        )
    early, final, without = registered_tests(cells)
    assert "early held-out success, minus GRPO: slope +0.30 (0.30 to 0.30) over 18" in early
    assert early.endswith("shown.") and final.endswith(": not shown.") and without.endswith(": shown.")
    waiting = registered_tests(cells[:17])
    assert all(text.endswith("no verdict before 18 comparisons have ended.") for text in waiting)
    assert registered_tests([row | {"part": "main"} for row in cells]) == []


LINE = rows((0, 0, 0.1), (0.1, 0.03, 0), (0.2, 0.06, 0.1), (0.3, 0.09, 0), (0.4, 0.12, 0.1))


def test_the_rule_is_a_line_through_the_comparisons():
    """Early is 0.3 times guided minus fresh exactly; final is 0.06 whatever it is."""
    early, final = lines(LINE).values()
    assert (early.slope, early.intercept, final.slope) == (
        pytest.approx(0.3),
        pytest.approx(0),
        pytest.approx(0),
    )
    found = expectation(0.2, LINE)
    assert found["early"]["value"] == pytest.approx(0.06) and found["final"]["value"] == pytest.approx(0.06)
    assert (found["comparisons"], found["range"], found["outside"]) == (5, (0, 0.4), False)
    # Residuals of final: 0.04, -0.06, 0.04, -0.06, 0.04; deviation sqrt(0.012 / 3), t(3) 3.1824.
    half = 3.1824463 * (0.012 / 3 * (1 + 1 / 5)) ** 0.5
    assert found["final"]["high"] - 0.06 == pytest.approx(half)
    assert sentence(found, 0.2) == (
        "R3L minus GRPO: expected +0.06 (0.06 to 0.06) in the first third, +0.06 (-0.16 to 0.28) at the end, from 5 "
        "comparisons; nearest: WebShop (+0.06, +0.10), WebShop (+0.09, +0.00)."
    )


def test_a_model_outside_the_measured_range_is_told_so():
    found = expectation(0.5, LINE)
    assert found["outside"] and sentence(found, 0.5).endswith(
        "Guided minus fresh, +0.50, is outside what was measured (+0.00 to +0.40): the line is drawn on, not tested "
        "there."
    )


@pytest.mark.parametrize(
    ("value", "count", "why"), [(None, 5, "not measured"), (0.2, 3, "too few comparisons")]
)
def test_nothing_is_expected_without_a_measure_or_comparisons(value, count, why):
    found = expectation(value, LINE[:count])
    assert found["early"] is None and why in sentence(found, value)


def test_each_comparison_is_predicted_by_the_others():
    """On a line all signs are right; of a point far below it the sign is not."""
    line = rows(*((x / 10, 0.03 * x + 0.01 * (x % 2), 0) for x in range(1, 9)))
    assert checked(line, "early") == (8, 8, 8)
    signs, inside, count = checked(line + rows((0.9, -0.05, 0)), "early")
    assert (signs, inside, count) == (8, 8, 9)
    assert checked(line[:4], "early") == (0, 0, 0)  # three others are too few for a line
    assert checked([], "early") == (0, 0, 0)


def test_probes_that_measured_one_value_give_no_line():
    """Without the one at 0.2 the others are all at 0.1."""
    same = rows(*((0.1, 0.01 * k, 0) for k in range(5)), part="map")
    for cells in (same, same + rows((0.2, 0.1, 0), part="map")):
        assert checked(cells, "early") == (0, 0, 0)
        map_table(cells)
    tested = {"early_test": 0.1, "final_test": 0.1, "early_test_unreflected": 0.1, "env": "a"}
    assert registered_tests([row | tested for row in same]) == []


def test_cells_of_the_map_are_predicted_by_what_was_known_before():
    """A comparison that is stored later (0.3, -5.0) moves the fitted line, not the registered one."""
    known = rows(*((x / 10, 0.03 * x + 0.01 * (x % 2), 0) for x in range(1, 9)))
    unseen = rows((0.2, 0.065, 0), (0.2, -0.3, 0), part="map")
    stored = known + rows((0.3, -5.0, 0)) + unseen
    assert predicted_before(stored, "early", known) == (1, 1, 2)
    notes = " ".join(map_table(stored, known).notes)
    assert "Predicted before they were run: 1 of 2 signs right, 1 of 2 inside the 95 % interval." in notes


def test_the_registered_line_is_the_one_that_was_written_down():
    """docs/preregistration.md: -0.029 + 0.305 x early, slope 0.11 to 0.50; -0.046 + 0.132 x at the end."""
    rule = lines(read_map(KNOWN_BEFORE))
    assert f"{rule['early'].intercept:+.3f} {rule['early'].slope:+.3f}" == "-0.029 +0.305"
    assert [f"{bound:.2f}" for bound in rule["early"].slope_bounds] == ["0.11", "0.50"]
    assert f"{rule['final'].intercept:+.3f} {rule['final'].slope:+.3f}" == "-0.046 +0.132"


def test_the_csv_is_read_as_it_was_written(tmp_path):
    write_pairs(tmp_path)
    write_probe(tmp_path, 0.3)
    found = map_rows([tmp_path])
    write(flat(found), map_table(found), tmp_path / "map.csv")
    (row,) = read_map(tmp_path / "map.csv")
    assert row["early"] == pytest.approx(0.2) and (row["early_test"], row["part"]) == (None, "main")
    (tmp_path / "map.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match=r"map.csv, line 1: columns are \['a', 'b'\]; write tier,env,"):
        read_map(tmp_path / "map.csv")


def test_names_say_whose_reflections_they_are():
    (row,) = rows((0, 0, 0))
    named = [
        name_of(row | {"feedback": f, "feedback_corruption": q}) for f, q in (("self", 0), ("environment", 0))
    ]
    assert named == ["WebShop", "WebShop, critic"]
    assert (
        name_of(row | {"feedback": "environment", "feedback_corruption": 0.3333})
        == "WebShop, critic 0.33 wrong"
    )


def test_kept_success_needs_retried_successes():
    measure = {"value": 0.5, "n": 10}
    assert kept_success({"retry_success_all": measure, "retry_success": measure}) is None
    assert kept_success({}) is None


def test_slopes_count_predicted_comparisons_only_if_there_are_some():
    """Predicted: 0.5 per unit where no hints were made wrong. With the other two it is by hand:

    x = 0, 0, 1, 1, 0, 0 and y = 0, 0, 0.5, 0.5, -0.75, -0.75: means 1/3 and -1/12; sum of products of
    deviations 7/6, of squares 4/3, so 0.875.
    """
    right = rows((0, 0, 0), (0, 0, 0), (1, 0.5, 0), (1, 0.5, 0), part="map")
    wrong = [row | {"feedback_corruption": 1.0} for row in rows((0, -0.75, 0), (0, -0.75, 0), part="map")]
    first = rows((0, 9, 0), (1, 0, 0))
    text = figure.slopes([*right, *wrong, *first], "early").splitlines()
    assert text[0].startswith("slope, 6 predicted: +0.88 (")
    assert text[1] == "slope, 4 of them, hints unaltered: +0.50 (0.50 to 0.50)"
    assert figure.slopes(right[:3], "early") == ""
    alone = rows((0, 0, 0), (0, 0, 0), (1, 0.5, 0), (1, 0.5, 0))
    assert figure.slopes(alone, "early") == "slope, all: +0.50 (0.50 to 0.50)"


def test_the_stored_map_is_drawn_twice_alike(tmp_path):
    drawn = [figure.draw(read_map(), tmp_path / name / "map.png")[0].read_bytes() for name in ("a", "b")]
    assert drawn[0] == drawn[1]


@pytest.mark.slow
def test_the_stored_map_is_that_of_the_stored_runs_and_probes():
    assert flat(map_rows([STORED])) == [pytest.approx(row) for row in flat(read_map())]
